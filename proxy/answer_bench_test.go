package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// longStream is a stream of an engine that samples n tokens.
func longStream(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[1,2,3]}` + "\n\n")
	for i := range n {
		delta := `"content":" word"`
		switch { // a third of it thought, a third said, a third the arguments of a call
		case i < n/3:
			delta = `"reasoning":" thought"`
		case i == 2*n/3:
			delta = `"tool_calls":[{"index":0,"id":"k1","type":"function","function":{"name":"f","arguments":"{\"text\":\""}}]`
		case i == n-1:
			delta = `"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]`
		case i > 2*n/3:
			delta = `"tool_calls":[{"index":0,"function":{"arguments":" word"}}]`
		}
		fmt.Fprintf(&b, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{%s},"logprobs":{"content":[{"token":" word","logprob":-0.5,"bytes":[32],"top_logprobs":[]}]},"finish_reason":null,"token_ids":[371]}]}`+"\n\n", delta)
	}
	b.WriteString(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}` + "\n\n")
	fmt.Fprintf(&b, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":%d,"total_tokens":%d}}`+"\n\ndata: [DONE]\n\n", n, n+3)
	return b.Bytes()
}

// BenchmarkLongAnswer streams one long answer in every dialect: what a chunk costs must not depend on how many came before.
func BenchmarkLongAnswer(b *testing.B) {
	for name, route := range map[string][2]string{
		"chat":      {"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`},
		"anthropic": {"/v1/messages", `{"model":"m","stream":true,"max_tokens":1000000,"messages":[{"role":"user","content":"x"}]}`},
		"responses": {"/v1/responses", `{"model":"m","stream":true,"input":"x"}`},
		"google":    {"/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"x"}]}]}`},
	} {
		for _, n := range []int{1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) { benchmarkAnswer(b, route[0], route[1], longStream(n), n) })
		}
	}
}

func benchmarkAnswer(b *testing.B, path, body string, answer []byte, chunks int) {
	url := benchProxy(b, sse, answer)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	b.SetBytes(int64(len(answer)))
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequest(http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer s1")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatalf("%d %v %.300s", resp.StatusCode, err, got)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(chunks), "ns/chunk")
}
