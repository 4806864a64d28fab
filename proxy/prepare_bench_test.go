package proxy

import (
	"strings"
	"testing"

	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
)

// BenchmarkPrepare measures what stands between a request and the engine: decoding the body and splicing capture parameters
// and neutral sampling into it, for the standard call's 4 KB and for a mebibyte.
func BenchmarkPrepare(b *testing.B) {
	up, err := engine.NewUpstream(engine.Config{URL: "http://127.0.0.1:1"})
	if err != nil {
		b.Fatal(err)
	}
	up.Assume(engine.Profile{Level: record.LevelTokens, StreamCapture: true})
	way, _ := up.Profile().Way(engine.Shape{Stream: true})
	p := plan{model: "served", way: way, trains: true}
	for name, size := range map[string]int{"4KiB": 4 << 10, "1MiB": 1 << 20} {
		text := strings.Repeat("some words of a task to be done, ", size/33)
		body := []byte(`{"model":"m","user":"u","messages":[{"role":"system","content":"You are a coding agent. ` + text[:size/3] +
			`"},{"role":"user","content":"` + text[:size*2/3] + `"}],"max_tokens":64,"temperature":1,"stream":true}`)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				req, err := dialect.DecodeChat(body)
				if err != nil {
					b.Fatal(err)
				}
				if _, bad := prepare(req, p); bad != nil {
					b.Fatal(bad)
				}
			}
		})
	}
}
