package engine

import (
	"net/http/httptest"
	"strings"
	"testing"

	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
)

// TestProbeKnowsEveryWire measures each kind of engine that the built-in one can play.
func TestProbeKnowsEveryWire(t *testing.T) {
	type want struct {
		level    record.Level
		stream   bool
		buffered bool
		mode     record.LogprobsMode
		forced   string
		derive   bool
		routes   bool   // tokenizer routes
		whole    string // what whole answers are asked for
		edits    string
	}
	const logprobs, ids = "logprobs top_logprobs", "return_token_ids logprobs top_logprobs"
	wants := map[fakeengine.Wire]want{
		fakeengine.WireVLLM:      {record.LevelTokens, true, false, record.LogprobsProcessed, ForcedKV, false, true, ids, ""},
		fakeengine.WireVLLMOld:   {record.LevelTokens, false, true, record.LogprobsProcessed, "", false, true, ids, ""},
		fakeengine.WireSGLang:    {record.LevelTokens, true, false, record.LogprobsProcessed, ForcedInput, false, true, ids, ""},
		fakeengine.WireSGLangOld: {record.LevelTokens, false, true, record.LogprobsProcessed, "", false, true, "return_prompt_token_ids return_meta_info " + logprobs, ""},
		fakeengine.WireLlamaCpp:  {record.LevelTokens, false, true, record.LogprobsRaw, "", true, true, "return_tokens verbose " + logprobs, ""},
		fakeengine.WireFireworks: {record.LevelTokens, true, false, record.LogprobsRaw, "", false, false, ids, ""},
		// Its rows have no candidates, whose gap could be measured.
		fakeengine.WireTogether:       {record.LevelLogprobs, true, false, record.LogprobsUnknown, "", false, false, logprobs, ""},
		fakeengine.WireOpenAI:         {record.LevelText, false, false, record.LogprobsUnknown, "", false, false, "", "return_token_ids logprobs max_tokens temperature"},
		fakeengine.WireOpenAILogprobs: {record.LevelLogprobs, true, false, record.LogprobsRaw, "", false, false, logprobs, "return_token_ids"},
		fakeengine.WireAnthropic:      {record.LevelText, false, false, record.LogprobsUnknown, "", false, false, "", ""},
		fakeengine.WireGoogle:         {record.LevelText, false, false, record.LogprobsUnknown, "", false, false, "", ""},
	}
	providers := map[fakeengine.Wire]string{fakeengine.WireAnthropic: providerAnthropic, fakeengine.WireGoogle: providerGoogle}
	for _, wire := range fakeengine.Wires() {
		w, known := wants[wire]
		if !known {
			t.Errorf("nobody says what the probe finds at %s", wire)
			continue
		}
		t.Run(string(wire), func(t *testing.T) {
			srv := httptest.NewServer(fakeengine.New(fakeengine.Options{Wire: wire, Key: "sk-1"}))
			defer srv.Close()
			up, err := NewUpstream(Config{URL: srv.URL, Key: "sk-1", Provider: providers[wire]})
			if err != nil {
				t.Fatal(err)
			}
			defer up.Close()
			p := up.Measure(t.Context())
			var edits []string
			for _, f := range p.Fixes {
				edits = append(edits, f.Param)
			}
			got := want{p.Level, p.StreamCapture, p.Buffered, p.LogprobsMode, p.Forced, p.Whole.Derive, p.Tokenizes && p.Detokenizes,
				strings.Join(p.Whole.names(), " "), strings.Join(edits, " ")}
			if got != w || !p.ToolSupport || p.Served != fakeengine.DefaultModel {
				t.Errorf("measured %+v\nwant     %+v\nstream %+v\nserves %q, tools %v, findings %q, %s", got, w, p.Stream, p.Served, p.ToolSupport, p.Findings, up.Problem())
			}
		})
	}
}
