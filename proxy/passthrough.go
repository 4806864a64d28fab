package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
)

// serveModels answers GET /v1/models, without a key: harnesses try it before they work. It names what the engine
// was found to serve.
func (s *Server) serveModels(w http.ResponseWriter, r *http.Request, prefix string) {
	up := s.Default
	if live, _, err := s.find(r.Context(), candidates(r, prefix)); err == nil && live.Engine() != nil {
		up = live.Engine()
	}
	if up == nil {
		writeModels(w, nil)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	p := up.Measure(ctx)
	if len(p.Models) == 0 && p.Served != "" {
		writeModels(w, []string{p.Served})
		return
	}
	writeModels(w, p.Models)
}

func writeModels(w http.ResponseWriter, models []string) {
	b := []byte(`{"object":"list","data":[`)
	for i, m := range models {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"id":`...)
		b = jsonscan.AppendQuote(b, m)
		b = append(b, `,"object":"model","created":0,"owned_by":"engine"}`...)
	}
	b = append(b, "]}"...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Write(b) //nolint:errcheck // the client may be gone
}

// serveRelay passes a call on that is no model call (embeddings and the like). It is never recorded.
func (s *Server) serveRelay(w http.ResponseWriter, r *http.Request, path, prefix string) {
	const d = record.OpenAIChat
	keys := candidates(r, prefix)
	live, _, err := s.find(r.Context(), keys)
	if err != nil {
		s.refuse(w, d, keys, err)
		return
	}
	up := live.Engine()
	if up == nil {
		s.deny(w, d, http.StatusServiceUnavailable, "", "no engine is known for this session")
		return
	}
	body, bad := s.readBody(w, r)
	if bad != nil {
		s.deny(w, d, bad.Status, bad.Param, bad.Text)
		return
	}
	resp, err := up.Do(r.Context(), &engine.Request{Method: r.Method, Path: trimVersion(path), Query: withoutKey(r), Header: r.Header, RequestID: w.Header().Get(requestIDHeader), Body: body})
	if err != nil {
		if !errors.Is(context.Cause(r.Context()), context.Canceled) {
			s.deny(w, d, http.StatusBadGateway, "", "the engine cannot be reached: "+err.Error())
		}
		return
	}
	defer resp.Body.Close()
	switch {
	case resp.Status == http.StatusUnauthorized || resp.Status == http.StatusForbidden:
		s.deny(w, d, http.StatusBadGateway, "", "the engine refused the proxy's own credentials: check --upstream-key and --auth-header")
		return
	case resp.Status >= 300 && resp.Status < 400: // not followed, and not for the harness to follow: it has no business there
		s.deny(w, d, http.StatusBadGateway, "", fmt.Sprintf("the engine answered %d, which is no answer: check --upstream", resp.Status))
		return
	}
	engine.CopyHeader(w.Header(), resp.Header)
	if e := resp.Header.Get("Content-Encoding"); e != "" {
		w.Header().Set("Content-Encoding", e)
	}
	w.WriteHeader(resp.Status)
	copyFlushing(w, resp.Body)
}

// copyFlushing passes bytes on as they come.
func copyFlushing(w http.ResponseWriter, body *engine.Body) {
	rc := http.NewResponseController(w)
	buf := make([]byte, 16<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil || rc.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
