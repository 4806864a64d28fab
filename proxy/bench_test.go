package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// standardWhole is the standard call of SPEC 9: 1,000 prompt ids, 64 sampled ids with logprobs, 350 bytes of text.
func standardWhole() []byte {
	var prompt, sampled, rows strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&prompt, ",%d", 1000+i*37%90000)
	}
	for i := range 64 {
		fmt.Fprintf(&sampled, ",%d", 2000+i*91%90000)
		fmt.Fprintf(&rows, `,{"token":" word","logprob":-0.%017d,"bytes":[32,119,111,114,100],"top_logprobs":[]}`, 12975780293345451+i)
	}
	return []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("a", 350) +
		`"},"logprobs":{"content":[` + rows.String()[1:] + `]},"finish_reason":"stop","stop_reason":null,"token_ids":[` + sampled.String()[1:] + `]}],"usage":{"prompt_tokens":1000,"completion_tokens":64,"total_tokens":1064},"prompt_token_ids":[` + prompt.String()[1:] + `]}`)
}

func standardStream() []byte {
	var b bytes.Buffer
	b.WriteString(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[1` + strings.Repeat(",1234", 999) + "]}\n\n")
	for range 200 {
		b.WriteString(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":{"content":[{"token":" word","logprob":-0.012975780293345451,"bytes":[32,119,111,114,100],"top_logprobs":[]}]},"finish_reason":null,"token_ids":[371]}]}` + "\n\n")
	}
	b.WriteString(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}` + "\n\n")
	b.WriteString(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":200,"total_tokens":1200}}` + "\n\ndata: [DONE]\n\n")
	return b.Bytes()
}

// benchProxy is a proxy with a durable store and session s1, before an engine that always gives the same answer.
func benchProxy(b *testing.B, label string, answer []byte) (url string) {
	b.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // what was asked is always the same
		w.Header().Set("Content-Type", label)
		w.Write(answer) //nolint:errcheck // the client will notice
	}))
	b.Cleanup(upstream.Close)
	st, err := store.Open(b.TempDir(), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { st.Close() })
	up, err := engine.NewUpstream(engine.Config{URL: upstream.URL})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(up.Close)
	up.Assume(engine.Profile{Level: record.LevelTokens, StreamCapture: true, Served: "m"})
	reg, err := session.Open(b.Context(), st, time.Now, func(*record.Session) *engine.Upstream { return up })
	if err != nil {
		b.Fatal(err)
	}
	if _, err := reg.Create(b.Context(), &record.Session{ID: "s1", CaptureLevel: record.LevelTokens}, up); err != nil {
		b.Fatal(err)
	}
	proxy := httptest.NewServer(New(Config{Sessions: reg, Log: st, Default: up}))
	b.Cleanup(proxy.Close)
	return proxy.URL
}

// BenchmarkCall measures whole calls through the proxy with a durable store: client, proxy and engine in one process.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name, label, request string
		answer               []byte
	}{{"whole", "application/json", simple, standardWhole()}, {"stream", sse, simpleStream, standardStream()}} {
		b.Run(c.name, func(b *testing.B) {
			url := benchProxy(b, c.label, c.answer)
			transport := &http.Transport{MaxIdleConnsPerHost: 64}
			defer transport.CloseIdleConnections()
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					req, _ := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", strings.NewReader(c.request))
					req.Header.Set("Authorization", "Bearer s1")
					resp, err := transport.RoundTrip(req)
					if err != nil {
						b.Error(err)
						return
					}
					if _, err := io.Copy(io.Discard, resp.Body); err != nil {
						b.Error(err)
					}
					resp.Body.Close()
				}
			})
		})
	}
}
