package engine

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// template is what an engine makes of messages, as text; each character is an id.
type template func(messages []said) (string, error)

type said struct {
	Role, Content string
	Calls         []struct{ ID string } `json:"tool_calls"`
	CallID        string                `json:"tool_call_id"`
}

// chatML is the plain template; | ends a message.
func chatML(messages []said) (string, error) {
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "<%s:%s|\n", m.Role, m.Content)
	}
	return b.String(), nil
}

// thinking renders an empty thought into the last answer only, as Qwen3's does.
func thinking(messages []said) (string, error) {
	list := slices.Clone(messages)
	if n := len(list); n > 0 && list[n-1].Role == "assistant" {
		list[n-1].Content = "()" + list[n-1].Content
	}
	return chatML(list)
}

// strict renders a result only behind its call.
func strict(messages []said) (string, error) {
	var b strings.Builder
	for i, m := range messages {
		if m.Role == "tool" && (i == 0 || len(messages[i-1].Calls) == 0 && messages[i-1].Role != "tool") {
			return "", fmt.Errorf("a tool's result without its call")
		}
		for _, c := range m.Calls {
			m.Content += "[" + c.ID + "]"
		}
		fmt.Fprintf(&b, "<%s:%s%s|\n", m.Role, m.CallID, m.Content)
	}
	return b.String(), nil
}

// newRenderer is an engine with a template and POST /tokenize.
func newRenderer(t *testing.T, tmpl template) (*Upstream, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var req struct {
			Messages []said
			Generate bool `json:"add_generation_prompt"`
			Kwargs   struct {
				Loud bool `json:"loud"`
			} `json:"chat_template_kwargs"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || r.URL.Path != "/tokenize" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		text, err := tmpl(req.Messages)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"message":%q}}`, err.Error())
			return
		}
		if req.Generate {
			text += "<assistant:"
		}
		if req.Kwargs.Loud {
			text += "!"
		}
		var ids []int32
		for _, c := range text {
			ids = append(ids, c)
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"tokens": ids, "count": len(ids)}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	up, err := NewUpstream(Config{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	return up, &asked
}

func text(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteRune(id)
	}
	return b.String()
}

func TestRender(t *testing.T) {
	result := json.RawMessage(`{"role":"tool","tool_call_id":"c1","content":"done"}`)
	user := json.RawMessage(`{"role":"user","content":"and?"}`)
	answer := json.RawMessage(`{"role":"assistant","content":"long ago","tool_calls":[{"id":"c1"}]}`)
	// steady is how often the engine is asked per call once it is known.
	for _, c := range []struct {
		name   string
		tmpl   template
		added  []json.RawMessage
		want   string
		steady int64
	}{
		{"plain", chatML, []json.RawMessage{result, user}, "\n<tool:done|\n<user:and?|\n<assistant:", 1},
		{"the last answer is rendered otherwise", thinking, []json.RawMessage{result}, "\n<tool:done|\n<assistant:", 1},
		{"a result behind its call", strict, []json.RawMessage{result, user}, "\n<tool:c1done|\n<user:and?|\n<assistant:", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			up, asked := newRenderer(t, c.tmpl)
			for i := range 3 {
				before := asked.Load()
				r, err := up.Render(t.Context(), "", answer, c.added)
				if err != nil || text(r.IDs) != c.want || r.Marker != '|' {
					t.Fatalf("%v: %q, marker %q", err, text(r.IDs), r.Marker)
				}
				if n := asked.Load() - before; i > 0 && n != c.steady {
					t.Errorf("asked %d times", n)
				}
			}
		})
	}
}

// Where there is no telling what is new, nothing is guessed.
func TestRenderCannot(t *testing.T) {
	user := []json.RawMessage{json.RawMessage(`{"role":"user","content":"and?"}`), json.RawMessage(`{"role":"user","content":"well?"}`)}
	answer := json.RawMessage(`{"role":"assistant","content":"x"}`)
	for name, tmpl := range map[string]template{
		"no marker": func(messages []said) (string, error) {
			s, err := chatML(messages)
			return strings.TrimSuffix(s, "|\n"), err
		},
		"counts its messages": func(messages []said) (string, error) {
			s, err := chatML(messages)
			return fmt.Sprint(len(messages)) + s, err
		},
		"refuses": func([]said) (string, error) { return "", fmt.Errorf("no template") },
	} {
		t.Run(name, func(t *testing.T) {
			up, _ := newRenderer(t, tmpl)
			if r, err := up.Render(t.Context(), "", answer, user); err == nil {
				t.Errorf("%q", text(r.IDs))
			}
		})
	}
}

func TestDeparts(t *testing.T) {
	up, _ := newRenderer(t, chatML)
	added := []json.RawMessage{json.RawMessage(`{"role":"user","content":"and?"}`)}
	sampled := []int32{'y', 'e', 's', '|'}
	for content, want := range map[string]int{"yes": -1, "yep": 2, "no": 0} {
		at, broken, err := up.Departs(t.Context(), "", json.RawMessage(`{"role":"assistant","content":"`+content+`"}`), added, sampled)
		if err != nil || broken != (want >= 0) || broken && at != want {
			t.Errorf("%s: %d %v %v", content, at, broken, err)
		}
	}
}

func TestSameTemplate(t *testing.T) {
	up, _ := newRenderer(t, chatML)
	if !up.SameTemplate(t.Context(), "", `{"chat_template_kwargs":{"reasoning_effort":"high"}}`) {
		t.Error("the template does not look at the effort")
	}
	if up.SameTemplate(t.Context(), "", `{"chat_template_kwargs":{"loud":true}}`) {
		t.Error("the template looks at that")
	}
}

func TestForcedMember(t *testing.T) {
	if key, value := ForcedMember(ForcedKV, []int32{1, 20}); key != "kv_transfer_params" || string(value) != `{"prompt_token_ids":[1,20]}` {
		t.Errorf("%s %s", key, value)
	}
	if key, value := ForcedMember(ForcedInput, []int32{3}); key != "input_ids" || string(value) != `[3]` {
		t.Errorf("%s %s", key, value)
	}
}
