package proxy

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
	"captureproxy/tokenize"
)

// serveCount answers how many tokens a request has, by the engine's own tokenizer where it has one, else as an estimate.
// It is never a turn.
func (s *Server) serveCount(w http.ResponseWriter, r *http.Request, rt route, prefix string) {
	keys := candidates(r, prefix)
	live, _, err := s.find(r.Context(), keys)
	if err != nil {
		s.refuse(w, rt.dialect, keys, err)
		return
	}
	body, bad := s.readBody(w, r)
	var req *dialect.Request
	if bad == nil {
		req, bad = countedRequest(rt, body)
	}
	if bad != nil {
		s.deny(w, rt.dialect, bad.Status, bad.Param, bad.Text)
		return
	}
	if s.serveNatively(w, r, rt, live.Engine(), body) {
		return
	}
	n, estimated := s.count(r.Context(), live.Engine(), req)
	b := dialect.AnthropicCount(int64(n))
	if rt.dialect == record.Google {
		b = dialect.GoogleCount(int64(n))
	}
	w.Header().Set("Content-Type", "application/json")
	if estimated {
		w.Header().Set("X-Token-Count", "estimated")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Write(b) //nolint:errcheck // the client may be gone
}

// countedRequest decodes what is to be counted.
func countedRequest(rt route, body []byte) (*dialect.Request, *dialect.Error) {
	var req *dialect.Request
	var err error
	if rt.dialect == record.Google {
		req, err = dialect.CountTokensGoogle(body, rt.model)
	} else {
		req, err = dialect.CountTokensAnthropic(body)
	}
	return req, asError(err)
}

func (s *Server) count(ctx context.Context, up *engine.Upstream, req *dialect.Request) (n int, estimated bool) {
	if up != nil {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if n, err := up.CountTokens(ctx, req.Doc.Get("messages"), req.Doc.Get("tools")); err == nil {
			return n, false
		}
	}
	encoding, err := tokenize.ForModel(req.Model)
	if err != nil { // the vocabularies are embedded: this is a broken build
		s.Logger.Error("no vocabulary to count tokens with", errField(err))
		return 1, true
	}
	n = 0
	for _, m := range req.Messages {
		n += encoding.Count(string(m)) + 3 // the template's own tokens around a message
	}
	for _, t := range req.Tools {
		n += encoding.Count(string(t))
	}
	return max(n, 1), true
}
