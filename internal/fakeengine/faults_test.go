package fakeengine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func start(t testing.TB, opts Options) *Server {
	t.Helper()
	s, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ask sends a chat call over HTTP; err is what reading the body ended with.
func ask(t testing.TB, s *Server, fault, extra string) (resp *http.Response, body string, err error) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(
		`{"messages":[{"role":"user","content":"go"}],"tools":[`+bashTool+`],"return_token_ids":true,"logprobs":true`+extra+`}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	if fault != "" {
		req.Header.Set("X-Fake-Fault", fault)
	}
	resp, err = http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}()
	data, err := io.ReadAll(resp.Body)
	return resp, string(data), err
}

const streamed = `,"stream":true,"stream_options":{"include_usage":true}`

// count adds up what a stream carries.
func count(body string) (ids, rows int, usage, finish string) {
	for _, ev := range events(body) {
		ids += len(gjson.Get(ev, "choices.0.token_ids").Array())
		rows += len(gjson.Get(ev, "choices.0.logprobs.content").Array())
		if u := gjson.Get(ev, "usage.completion_tokens"); u.Exists() {
			usage = u.Raw
		}
		if f := gjson.Get(ev, "choices.0.finish_reason").String(); f != "" {
			finish = f
		}
	}
	return ids, rows, usage, finish
}

func TestStreamFaults(t *testing.T) {
	s := start(t, Options{})
	for fault, check := range map[string]func(resp *http.Response, body string, err error) error{
		"": func(_ *http.Response, body string, err error) error {
			ids, rows, usage, finish := count(body)
			if err != nil || ids == 0 || ids != rows || usage != fmt.Sprint(ids) || finish != "tool_calls" || !strings.HasSuffix(body, "data: [DONE]\n\n") {
				return fmt.Errorf("a good stream has %d ids, %d rows, usage %s, finish %s, %v", ids, rows, usage, finish, err)
			}
			return nil
		},
		"cut 3": func(_ *http.Response, body string, err error) error {
			if err == nil || len(events(body)) != 3 {
				return fmt.Errorf("ended with %v after %d events", err, len(events(body)))
			}
			return nil
		},
		"error-event 2": func(_ *http.Response, body string, err error) error {
			ev := events(body)
			if len(ev) != 4 || !gjson.Get(ev[2], "error.code").Exists() || ev[3] != "[DONE]" || err != nil {
				return fmt.Errorf("events %v, %v", ev, err)
			}
			return nil
		},
		"done-early": func(_ *http.Response, body string, _ error) error {
			if _, _, _, finish := count(body); finish != "" || !strings.Contains(body, "[DONE]") {
				return fmt.Errorf("finish %q", finish)
			}
			return nil
		},
		"garbage 1": func(_ *http.Response, body string, _ error) error {
			if ev := events(body); json.Valid([]byte(ev[1])) || !json.Valid([]byte(ev[2])) {
				return errors.New("no garbage where it was asked for")
			}
			return nil
		},
		"pings": func(_ *http.Response, body string, _ error) error {
			if strings.Count(body, ": ping\n\n") != len(events(body))-1 {
				return errors.New("not a ping before every event")
			}
			return nil
		},
		"huge-first": func(_ *http.Response, body string, _ error) error {
			if ev, _, _ := strings.Cut(body, "\n\n"); len(ev) < 1<<20 || !json.Valid([]byte(ev[len("data: "):])) {
				return fmt.Errorf("the first event has %d bytes", len(ev))
			}
			return nil
		},
		"json-type": func(resp *http.Response, body string, _ error) error {
			if resp.Header.Get("Content-Type") != "application/json" || !strings.HasPrefix(body, "data: ") {
				return errors.New("no stream under a JSON label")
			}
			return nil
		},
		"json-answer": func(resp *http.Response, body string, _ error) error {
			if !json.Valid([]byte(body)) || gjson.Get(body, "object").String() != "chat.completion" {
				return errors.New("no whole answer")
			}
			return nil
		},
		"gzip": func(resp *http.Response, body string, _ error) error {
			if resp.Header.Get("Content-Encoding") != "gzip" || !strings.HasPrefix(body, "\x1f\x8b") {
				return errors.New("not compressed")
			}
			return nil
		},
		"missing-ids": func(_ *http.Response, body string, _ error) error {
			if ids, rows, _, _ := count(body); ids != 0 || rows == 0 {
				return fmt.Errorf("%d ids, %d rows", ids, rows)
			}
			return nil
		},
		"missing-prompt-ids": func(_ *http.Response, body string, _ error) error {
			if gjson.Get(events(body)[0], "prompt_token_ids").Raw != "null" {
				return errors.New("prompt ids")
			}
			return nil
		},
		"short-ids": func(_ *http.Response, body string, _ error) error {
			if ids, rows, _, _ := count(body); ids != rows-1 {
				return fmt.Errorf("%d ids, %d rows", ids, rows)
			}
			return nil
		},
		"short-logprobs": func(_ *http.Response, body string, _ error) error {
			if ids, rows, _, _ := count(body); ids != rows+1 {
				return fmt.Errorf("%d ids, %d rows", ids, rows)
			}
			return nil
		},
		"missing-logprobs": func(_ *http.Response, body string, _ error) error {
			return has(body, `"logprobs":null,"finish_reason":"tool`)
		},
		"null-logprob":     func(_ *http.Response, body string, _ error) error { return has(body, `"logprob":null`) },
		"positive-logprob": func(_ *http.Response, body string, _ error) error { return has(body, `"logprob":0.5`) },
		"sentinel-logprob": func(_ *http.Response, body string, _ error) error { return has(body, `"logprob":-9999.0`) },
		"nan-logprob":      func(_ *http.Response, body string, _ error) error { return has(body, `"logprob":NaN`) },
		"abort":            func(_ *http.Response, body string, _ error) error { return has(body, `"finish_reason":"abort"`) },
		"content-filter": func(_ *http.Response, body string, _ error) error {
			return has(body, `"finish_reason":"content_filter"`)
		},
		"status 503 7":      refused(503, "7", `"code":503`),
		"status 429":        refused(429, "", `"code":429`),
		"refuse seed":       func(_ *http.Response, body string, _ error) error { return has(body, "[DONE]") },
		"refuse x logprobs": refused(400, "", "Unsupported parameter: 'logprobs'"),
		"sglang":            refused(400, "", `{"object":"error"`),
		"no-such-thing":     refused(400, "", "no such kind"),
		"no-usage": func(_ *http.Response, body string, _ error) error {
			if _, _, usage, _ := count(body); usage != "" {
				return fmt.Errorf("usage %s", usage)
			}
			return nil
		},
		"wrong-usage": func(_ *http.Response, body string, _ error) error {
			if ids, _, usage, _ := count(body); usage != fmt.Sprint(ids+1) {
				return fmt.Errorf("usage %s for %d ids", usage, ids)
			}
			return nil
		},
		"slow 1":    func(_ *http.Response, body string, _ error) error { return has(body, "[DONE]") },
		"stall 2 1": func(_ *http.Response, body string, _ error) error { return has(body, "[DONE]") },
	} {
		resp, body, err := ask(t, s, fault, streamed)
		if err := check(resp, body, err); err != nil {
			t.Errorf("%s: %v", fault, err)
		}
	}
}

func has(body, part string) error {
	if !strings.Contains(body, part) {
		return fmt.Errorf("no %s in %.300s", part, body)
	}
	return nil
}

func refused(status int, retryAfter, part string) func(*http.Response, string, error) error {
	return func(resp *http.Response, body string, _ error) error {
		if resp.StatusCode != status || resp.Header.Get("Retry-After") != retryAfter {
			return fmt.Errorf("status %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
		}
		return has(body, part)
	}
}

func TestWholeFaults(t *testing.T) {
	s := start(t, Options{})
	if _, body, err := ask(t, s, "cut", ""); err == nil {
		t.Errorf("a cut answer came whole: %s", body)
	}
	_, body, _ := ask(t, s, "wrong-label", `,"return_tokens_as_token_ids":true`)
	last := gjson.Get(body, "choices.0.logprobs.content.@reverse.0.token").String()
	if id := gjson.Get(body, "choices.0.token_ids.@reverse.0").Int(); last != fmt.Sprintf("token_id:%d", id+1) {
		t.Errorf("label %s of id %d", last, id)
	}
	_, body, _ = ask(t, s, "no-usage", "")
	if gjson.Get(body, "usage").Raw != "null" {
		t.Error("usage")
	}
}

// The marker works as the header does, at one step of the script or once per body.
func TestMarkers(t *testing.T) {
	e := New(Options{})
	status := func(messages string) int {
		w := recording{method: "POST", path: "/v1/chat/completions", request: `{"messages":[` + messages + `],"tools":[` + bashTool + `]}`}.play(e)
		return w.Code
	}
	once := `{"role":"user","content":"go [[fault:status 500 once]]"}`
	if a, b := status(once), status(once); a != 500 || b != 200 {
		t.Errorf("once: %d, then %d", a, b)
	}
	step := `{"role":"user","content":"go [[fault:status 502 step=2]]"}`
	if a, b := status(step), status(step+`,{"role":"tool","content":"x"}`); a != 200 || b != 502 {
		t.Errorf("step=2: %d, then %d", a, b)
	}
	if got := status(`{"role":"user","content":"[[fault:"}`); got != 400 {
		t.Errorf("a broken marker: %d", got)
	}
}

func TestFaultHook(t *testing.T) {
	s := start(t, Options{Fault: func(req *Request) Fault {
		if req.Stream {
			return Fault{Kind: FaultStatus, Status: 529}
		}
		return Fault{}
	}})
	if resp, _, _ := ask(t, s, "", streamed); resp.StatusCode != 529 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if resp, _, _ := ask(t, s, "", ""); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// Requests are kept byte for byte, and a client that went away is noticed.
func TestRequestsAndHangUp(t *testing.T) {
	s := start(t, Options{Keep: 2})
	for range 2 {
		if _, _, err := ask(t, s, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	body := []byte(`{ "messages":[{"role":"user","content":"go"}], "stream":true}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Fake-Fault", "stall 1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	for {
		got := s.Requests()
		last := got[len(got)-1]
		if !last.Done {
			time.Sleep(time.Millisecond)
			continue
		}
		if len(got) != 2 || !last.HungUp || got[0].HungUp || !bytes.Equal(last.Body, body) || last.Header.Get("X-Fake-Fault") != "stall 1" {
			t.Fatalf("kept %d: %+v", len(got), last)
		}
		return
	}
}
