package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"captureproxy/internal/record"
	"captureproxy/validate"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)

// session is one that trains.
func session() *record.Session {
	return &record.Session{
		ID: "s1", Instance: "00000000000000aa", Status: record.Running, CreatedAt: start, CaptureLevel: record.LevelTokens,
		Spec: record.Spec{Purpose: record.PurposeAuto},
		Engine: record.Engine{URL: "http://127.0.0.1:8000/v1", Model: "m", Profile: record.Profile{
			Provider: "vllm", Version: "0.32.0", CaptureLevel: record.LevelTokens, StreamCapture: true, LogprobsMode: record.LogprobsProcessed, ToolSupport: true,
		}},
	}
}

func text(role, content string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"role":%q,"content":%q}`, role, content))
}

var tool = json.RawMessage(`{"type":"function","function":{"name":"bash","parameters":{"type":"object"}}}`)

// call is an agent's call that came out well.
func call(number int, prompt, sampled []int32, logprobs ...float64) *record.Call {
	p, s := int64(len(prompt)), int64(len(sampled))
	at := start.Add(time.Duration(number) * time.Second)
	return &record.Call{
		Session: "s1", Number: number, Dialect: record.OpenAIChat, Stream: true, Model: "gpt", Served: "m",
		Messages: []json.RawMessage{text("user", "q")}, Tools: []json.RawMessage{tool},
		RequestedSampling: json.RawMessage(`{}`), SubmittedSampling: json.RawMessage(`{"temperature":1.0}`),
		PromptSource: record.PromptEngine, Outcome: record.Complete, Status: 200, Forwarded: true,
		Timing: record.Timing{Received: at, Dispatched: at.Add(time.Millisecond), FirstToken: at.Add(2 * time.Millisecond),
			LastToken: at.Add(3 * time.Millisecond), Recorded: at.Add(4 * time.Millisecond)},
		Usage: record.Usage{Raw: json.RawMessage(fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d}`, p, s)), Prompt: &p, Completion: &s},
		Choices: []record.Choice{{
			Outcome: record.Complete, FinishReason: "stop", FinishReasonRaw: "stop",
			PromptIDs: prompt, SampledIDs: sampled, Logprobs: logprobs, HasIDs: true, HasLogprobs: true,
			Message: text("assistant", "a"),
		}},
	}
}

func bytesOf(t testing.TB, r *Rollout) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := r.WriteTo(&b)
	if err != nil {
		t.Fatal(err)
	}
	if int(n) != b.Len() {
		t.Fatalf("WriteTo says %d bytes and wrote %d", n, b.Len())
	}
	return b.Bytes()
}

func reread(t testing.TB, r *Rollout) *Rollout {
	t.Helper()
	again, err := Read(bytes.NewReader(bytesOf(t, r)))
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func codes(findings []validate.Finding) []string {
	out := []string{}
	for _, f := range findings {
		out = append(out, string(f.Level)+" "+string(f.Code))
	}
	return out
}

// sane fails when the document contradicts itself or does not survive being written and read.
func sane(t testing.TB, r *Rollout) {
	t.Helper()
	if found := Check(r); len(found) > 0 {
		t.Errorf("the document contradicts itself: %v", found)
	}
	first := bytesOf(t, r)
	if !json.Valid(first) {
		t.Fatalf("no JSON: %s", first)
	}
	again := reread(t, r)
	if second := bytesOf(t, again); !bytes.Equal(first, second) {
		t.Errorf("changed by reading:\n%s\n%s", first, second)
	}
	if found := Check(again); len(found) > 0 {
		t.Errorf("the document read back contradicts itself: %v", found)
	}
}
