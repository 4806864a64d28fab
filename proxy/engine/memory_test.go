package engine

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
)

// restarts plays proxies that come one after the other over one file.
type restarts struct {
	t    *testing.T
	path string
	// calls counts the model calls that the engine got.
	calls  atomic.Int64
	engine atomic.Pointer[http.Handler]
	url    string
}

func newRestarts(t *testing.T, engine http.Handler) *restarts {
	r := &restarts{t: t, path: filepath.Join(t.TempDir(), "data", "engines.json")}
	r.become(engine)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/chat/completions") {
			r.calls.Add(1)
		}
		(*r.engine.Load()).ServeHTTP(w, q)
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

// become puts another engine behind the same address.
func (r *restarts) become(engine http.Handler) { r.engine.Store(&engine) }

// process measures in a process of its own and returns the profile and the number of model calls that it took.
func (r *restarts) process(key string, then func(*Upstream)) (*Profile, int64) {
	r.t.Helper()
	m, err := OpenMemory(r.path, func(err error) { r.t.Error(err) })
	if err != nil {
		r.t.Fatal(err)
	}
	h, err := NewHub(Config{URL: r.url, Key: key, Memory: m})
	if err != nil {
		r.t.Fatal(err)
	}
	defer h.Close()
	before := r.calls.Load()
	p := h.Default().Measure(r.t.Context())
	taken := r.calls.Load() - before
	if then != nil {
		then(h.Default())
	}
	return p, taken
}

// TestMemory: what was measured and learnt survives, for the same credential only, and the credential is nowhere.
func TestMemory(t *testing.T) {
	r := newRestarts(t, fakeengine.New(fakeengine.Options{Wire: fakeengine.WireSGLang}))
	first, full := r.process("sk-secret", func(up *Upstream) { up.Learn(Fix{Param: "seed", Why: "refused"}) })
	second, again := r.process("sk-secret", nil)
	if !second.Recalled || again != 2 || full <= again {
		t.Errorf("the second process made %d calls, the first %d; recalled %v", again, full, second.Recalled)
	}
	if second.Level != first.Level || second.Forced != first.Forced || second.LogprobsMode != first.LogprobsMode || !second.ToolSupport ||
		len(second.Stream.Params) != len(first.Stream.Params) || len(second.Stream.Header) != 1 || len(second.Fixes) != 1 || second.Fixes[0].Param != "seed" {
		t.Errorf("%+v\nwas %+v", second, first)
	}
	if other, calls := r.process("sk-other", nil); other.Recalled || calls != full {
		t.Errorf("another credential got what was measured with the first: %d calls", calls)
	}
	data, err := os.ReadFile(r.path)
	if err != nil || strings.Contains(string(data), "sk-") || strings.Contains(string(data), r.url) {
		t.Errorf("%v %s", err, data)
	}
	if info, err := os.Stat(r.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// TestMemoryIsDoubted: an engine that says something else than before is measured anew.
func TestMemoryIsDoubted(t *testing.T) {
	for name, now := range map[string]fakeengine.Options{
		"models":  {Model: "other"},
		"mode":    {LogprobsMode: fakeengine.Raw},
		"version": {Wire: fakeengine.WireSGLang},
	} {
		r := newRestarts(t, fakeengine.New(fakeengine.Options{}))
		r.process("k", nil)
		r.become(fakeengine.New(now))
		p, calls := r.process("k", nil)
		if !p.Measured || p.Recalled || calls < 4 {
			t.Errorf("%s: recalled %v, %d calls", name, p.Recalled, calls)
		}
		if p, _ := r.process("k", nil); !p.Recalled {
			t.Errorf("%s: the new measurement is not kept", name)
		}
	}
}

// TestRefusalDoubtsMemory: a refusal says that the engine is not what it was.
func TestRefusalDoubtsMemory(t *testing.T) {
	r := newRestarts(t, fakeengine.New(fakeengine.Options{}))
	_, full := r.process("k", nil)
	p, _ := r.process("k", func(up *Upstream) {
		up.Refuse(Shape{Stream: true})
		before := r.calls.Load()
		if p := up.Measure(t.Context()); !p.Measured || p.Recalled || p.Level != record.LevelTokens || r.calls.Load()-before != full {
			t.Errorf("%+v after %d calls", p, r.calls.Load()-before)
		}
		if way, _ := up.Profile().Way(Shape{Stream: true}); way.Level != record.LevelText {
			t.Error("the refusal is forgotten")
		}
	})
	if !p.Recalled {
		t.Errorf("%+v", p)
	}
}

func TestMemoryThatCannotBeRead(t *testing.T) {
	r := newRestarts(t, fakeengine.New(fakeengine.Options{}))
	r.process("k", nil)
	for _, content := range []string{"", "{", `{"format":99,"salt":"","engines":{}}`, `{"format":1,"salt":"AA==","engines":null}`} {
		if err := os.WriteFile(r.path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, _ := r.process("k", nil); !p.Measured || p.Recalled {
			t.Errorf("%q: %+v", content, p)
		}
	}
	if p, _ := r.process("k", nil); !p.Recalled {
		t.Error("what was measured after that is not kept")
	}
	var nothing *Memory
	nothing.Close()
}
