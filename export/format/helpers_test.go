package format

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"captureproxy/export"
	"captureproxy/internal/record"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// capture is a session's log as a test tells it.
type capture struct {
	sess  *record.Session
	calls []*record.Call
}

// newCapture is a session that completed and trains; its reward is nil when nobody scored it.
func newCapture(id, group string, reward *float64) *capture {
	c := &capture{sess: &record.Session{
		ID: id, Instance: "00000000000000aa", Status: record.Completed, CreatedAt: start, CaptureLevel: record.LevelTokens, Reward: reward,
		Spec: record.Spec{Purpose: record.PurposeAuto},
		Engine: record.Engine{URL: "http://127.0.0.1:8000/v1", Model: "m", Profile: record.Profile{
			Provider: "vllm", CaptureLevel: record.LevelTokens, LogprobsMode: record.LogprobsProcessed, ToolSupport: true,
		}},
	}}
	if group != "" {
		c.sess.Spec.Group = &record.Group{ID: group}
	}
	return c
}

func ptr[T any](v T) *T { return &v }

func text(role, content string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"role":%q,"content":%q}`, role, content))
}

var bash = json.RawMessage(`{"type":"function","function":{"name":"bash","description":"run","parameters":{"type":"object"}}}`)

// turn is a call that came out well, with a logprob for each sampled id.
func (c *capture) turn(messages []json.RawMessage, prompt []int32, sampled ...int32) *record.Call {
	n := len(c.calls) + 1
	at := start.Add(time.Duration(n) * time.Second)
	logprobs := make([]float64, len(sampled))
	for i, id := range sampled {
		logprobs[i] = -float64(id%7+1) / 8
	}
	p, s := int64(len(prompt)), int64(len(sampled))
	call := &record.Call{
		Session: c.sess.ID, Number: n, Dialect: record.OpenAIChat, Model: "m", Served: "m",
		Messages: messages, Tools: []json.RawMessage{bash}, RequestedSampling: json.RawMessage(`{}`), SubmittedSampling: json.RawMessage(`{"temperature":1.0}`),
		PromptSource: record.PromptEngine, Outcome: record.Complete, Status: 200, Forwarded: true,
		Policy: record.CallPolicy{Dispatch: ptr(int64(3)), FirstToken: ptr(int64(3)), End: ptr(int64(4))},
		Timing: record.Timing{Received: at, Dispatched: at, FirstToken: at, LastToken: at.Add(time.Second / 2), Recorded: at.Add(time.Second / 2)},
		Usage:  record.Usage{Prompt: &p, Completion: &s},
		Choices: []record.Choice{{
			Outcome: record.Complete, FinishReason: "stop", PromptIDs: prompt, SampledIDs: sampled, Logprobs: logprobs,
			HasIDs: true, HasLogprobs: true, Message: text("assistant", fmt.Sprint("answer ", n)),
		}},
	}
	c.calls = append(c.calls, call)
	return call
}

// next asks on after an earlier turn, with new ids after its answer.
func (c *capture) next(after *record.Call, added []int32, sampled ...int32) *record.Call {
	ch := &after.Choices[0]
	prompt := append(append(append([]int32{}, ch.PromptIDs...), ch.SampledIDs...), added...)
	messages := append(append([]json.RawMessage{}, after.Messages...), ch.Message, text("user", fmt.Sprint("go on ", len(c.calls)+1)))
	return c.turn(messages, prompt, sampled...)
}

func (c *capture) build(mode record.Shared) *export.Rollout {
	return export.Build(c.sess, c.calls, export.Options{Shared: mode, IncludeMessages: true, ProxyVersion: "0"})
}

// tangled is a session with a fork, a retry that was discarded, a second root, a title call and an aborted turn.
func tangled(id, group string, reward *float64) *capture {
	c := newCapture(id, group, reward)
	ask := []json.RawMessage{text("system", "You fix code."), text("user", "fix it")}
	root := c.turn(ask, []int32{1, 2, 3}, 10, 11)
	retry := c.turn(ask, []int32{1, 2, 3}, 12, 13) // never continued
	retry.RetryOf = root.Number
	left := c.next(root, []int32{20}, 14, 15, 16)
	right := c.next(root, []int32{21}, 17) // the fork
	aborted := c.next(left, []int32{22}, 18, 19)
	aborted.Outcome, aborted.Choices[0].Outcome, aborted.Choices[0].FinishReason = record.Aborted, record.Aborted, "abort"
	c.next(aborted, []int32{23, 24}, 30, 31)
	c.next(right, []int32{25}, 35)
	c.turn([]json.RawMessage{text("system", "You fix it better."), text("user", "fix it")}, []int32{5, 6}, 32, 33) // a second root
	title := c.turn([]json.RawMessage{text("user", "Title?")}, []int32{7, 8}, 34)
	title.Tools = nil
	return c
}

// list is a Source of documents in memory.
type list []*export.Rollout

func (l list) Len() int          { return len(l) }
func (l list) Name(i int) string { return fmt.Sprintf("document %d", i) }
func (l list) Rollout(_ context.Context, i int) (*export.Rollout, error) {
	return l[i], nil
}

// folder takes a form's files.
type folder map[string]*bytes.Buffer

func (f folder) create(name string) (io.WriteCloser, error) {
	f[name] = &bytes.Buffer{}
	return nopCloser{f[name]}, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// files exports to memory; a form of one file has the name "".
func files(src Source, name string, o Options) (folder, Summary, error) {
	out := folder{"": &bytes.Buffer{}}
	s, err := Export(context.Background(), src, name, Output{Stream: out[""], Create: out.create}, o, nil)
	return out, s, err
}

func mustFiles(t testing.TB, src Source, name string, o Options) (folder, Summary) {
	t.Helper()
	out, s, err := files(src, name, o)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return out, s
}

// tokenForms are the forms that carry ids.
func tokenForms() []string {
	var names []string
	for _, n := range Names() {
		if n != "messages" {
			names = append(names, n)
		}
	}
	return names
}

// values reads the JSON values of all files of an export.
func values[T any](t testing.TB, out folder) []T {
	t.Helper()
	var list []T
	for _, name := range sortedKeys(out) {
		dec := json.NewDecoder(bytes.NewReader(out[name].Bytes()))
		for {
			var v T
			err := dec.Decode(&v)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			list = append(list, v)
		}
	}
	return list
}

// trainedTokens counts what a trainer would train in a file, by the trainer's own rule, as its loader in
// shared/trainers does.
func trainedTokens(t testing.TB, name string, out folder) int {
	t.Helper()
	n := 0
	switch name {
	case "openenv":
		for _, s := range values[struct{ Entries []struct{ Loss_mask []int } }](t, out) {
			for _, e := range s.Entries {
				n += sum(e.Loss_mask)
			}
		}
	case "verifiers":
		for _, e := range values[struct {
			Traces []struct {
				Nodes []struct {
					Token_ids []int
					Mask      []bool
					Logprobs  []float64
				}
			}
		}](t, out) {
			for i, node := range e.Traces[0].Nodes {
				trained := 0
				for _, m := range node.Mask {
					if m {
						trained++
					}
				}
				if trained != len(node.Logprobs) || len(node.Mask) != len(node.Token_ids) {
					t.Errorf("node %d: %d ids, %d mask entries, %d true, %d logprobs", i, len(node.Token_ids), len(node.Mask), trained, len(node.Logprobs))
				}
				n += trained
			}
		}
	case "verl":
		for _, r := range values[struct{ Output struct{ Response_mask []int } }](t, out) {
			n += sum(r.Output.Response_mask)
		}
	case "tinker", "tinker-sft":
		key := map[string]string{"tinker": "advantages", "tinker-sft": "weights"}[name]
		for _, r := range values[struct {
			Loss_fn_inputs map[string]struct{ Data []float64 }
		}](t, out) {
			for _, v := range r.Loss_fn_inputs[key].Data {
				if v != 0 {
					n++
				}
			}
		}
	case "trl-sft":
		for _, r := range values[struct{ Labels []int }](t, out) {
			n += labelled(r.Labels)
		}
	case "trl-async":
		for _, r := range values[struct{ Completion_mask []int }](t, out) {
			n += sum(r.Completion_mask)
		}
	case "skyrl":
		for _, b := range values[struct{ Loss_masks [][]int }](t, out) {
			for _, m := range b.Loss_masks {
				n += sum(m)
			}
		}
	case "nemo-gym":
		for _, e := range values[struct{ Generation_token_ids []int }](t, out) {
			n += len(e.Generation_token_ids)
		}
	case "areal":
		for _, s := range values[struct {
			Interactions map[string]struct {
				Tensor_dict struct{ Loss_mask struct{ Data string } }
			}
		}](t, out) {
			for _, row := range s.Interactions {
				b, err := base64.StdEncoding.DecodeString(row.Tensor_dict.Loss_mask.Data)
				if err != nil {
					t.Fatal(err)
				}
				for ; len(b) > 0; b = b[8:] {
					n += int(binary.LittleEndian.Uint64(b))
				}
			}
		}
	case "atif":
		for _, tr := range values[struct {
			Steps []struct {
				Is_copied_context bool
				Metrics           struct{ Completion_token_ids, Logprobs []float64 }
			}
		}](t, out) {
			for _, s := range tr.Steps {
				if len(s.Metrics.Completion_token_ids) != len(s.Metrics.Logprobs) {
					t.Errorf("a step has %d ids and %d logprobs", len(s.Metrics.Completion_token_ids), len(s.Metrics.Logprobs))
				}
				if !s.Is_copied_context {
					n += len(s.Metrics.Logprobs)
				}
			}
		}
	case "atropos":
		for _, g := range values[struct{ Masks [][]int }](t, out) {
			for _, m := range g.Masks {
				n += labelled(m)
			}
		}
	case "miles", "rows":
		for _, r := range values[struct{ Loss_mask []int }](t, out) {
			n += sum(r.Loss_mask)
		}
	default:
		t.Fatalf("nobody counts %s", name)
	}
	return n
}

func sum(list []int) int {
	n := 0
	for _, v := range list {
		n += v
	}
	return n
}

func labelled(list []int) int {
	n := 0
	for _, v := range list {
		if v != -100 {
			n++
		}
	}
	return n
}

func all(out folder) string {
	var b strings.Builder
	for _, name := range sortedKeys(out) {
		fmt.Fprintf(&b, "%s:\n%s", name, out[name])
	}
	return b.String()
}
