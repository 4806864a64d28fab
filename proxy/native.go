package proxy

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
)

// speaksNatively says whether the engine takes the harness's dialect as it is, and it is not chat, which has a line of its
// own.
func (c *call) speaksNatively() bool {
	switch c.route.dialect {
	case record.OpenAIResponses, record.AnthropicMessages, record.Google:
		return c.up != nil && slices.Contains(c.up.Profile().Native, c.route.dialect)
	}
	return false
}

// decodeNative reads a request whose bytes go on as they came.
func (c *call) decodeNative() *dialect.Error {
	var err error
	if c.req, err = dialect.Native(c.route.dialect, c.body, c.route.model, c.route.stream, c.earlier); err != nil {
		return asError(err)
	}
	c.native = dialect.NewReader(c.route.dialect)
	return nil
}

// prepareNative makes the bytes for an engine of the harness's own dialect: those that came, except for what the session's
// owner asked for by name.
func prepareNative(req *dialect.Request, p plan) prepared {
	e := &editor{req: req}
	out := prepared{model: req.Model, usage: true}
	if p.model != "" && req.Model != "" && p.model != req.Model {
		out.model = p.model
		if req.Dialect == record.Google { // it stands in the path
			e.edits = append(e.edits, record.Edit{Kind: record.EditModel, Param: "model", From: jsonscan.AppendQuote(nil, req.Model),
				To: jsonscan.AppendQuote(nil, p.model), Why: "the served model's name"})
		} else {
			e.set(record.EditModel, "model", jsonscan.AppendQuote(nil, p.model), "the served model's name")
		}
	}
	nested := e
	if req.Dialect == record.Google {
		nested = &editor{req: &dialect.Request{Doc: dialect.GoogleConfig(req.Doc), Sampling: req.Sampling, MaxTokens: req.MaxTokens, CapKey: req.CapKey}}
		if len(p.asked) > 0 {
			p.asked = googleSampling(p.asked)
		}
	}
	nested.sampling(p.asked, "the session's eval_sampling")
	nested.limit(p, &out)
	if nested != e && len(nested.changes) > 0 {
		config := "generationConfig"
		if req.Doc.Get("generation_config") != nil {
			config = "generation_config"
		}
		if inner := nested.req.Doc; len(inner.Bytes) > 0 {
			e.put(config, inner.Edit(nil, nested.changes))
		} else {
			for _, change := range nested.changes {
				e.put(config+"."+change.Key, change.To)
			}
		}
		for _, edit := range nested.edits {
			edit.Param = config + "." + edit.Param
			e.edits = append(e.edits, edit)
		}
	}
	out.sampling = nested
	out.body, out.edits = req.Doc.Bytes, e.edits
	if len(e.changes) > 0 {
		out.body = req.Doc.Edit(make([]byte, 0, len(req.Doc.Bytes)+256), e.changes)
	}
	return out
}

// googleSampling is a session's eval_sampling in Google's spelling.
func googleSampling(params sampling) sampling {
	out := sampling{}
	for param, value := range params {
		switch param {
		case "top_p":
			param = "topP"
		case "top_k":
			param = "topK"
		}
		out[param] = value
	}
	return out
}

// path is where the engine takes the call, and whether the key goes there as a bearer's.
func (c *call) path() (path string, bearer bool) {
	if c.native == nil {
		return c.up.ChatPath(c.req.Wire())
	}
	switch c.rec.Dialect {
	case record.AnthropicMessages:
		return "/messages", false
	case record.Google:
		return engine.GooglePath(c.sent.model, c.r.URL.Path[strings.LastIndexByte(c.r.URL.Path, ':')+1:]), false
	}
	return "/responses", false
}

// events splits an answer that is streamed in the way of its dialect.
func (c *call) events(head []byte, body reader) events {
	if c.array(head) {
		return engine.NewArrayReader(body, head)
	}
	return engine.NewEventReader(body, head)
}

// array says whether the engine streams a JSON array, as Google does without alt=sse.
func (c *call) array(head []byte) bool {
	return c.native != nil && c.req.Stream && c.rec.Dialect == record.Google && engine.LooksLikeArray(head)
}

// hear reads one event of an engine that speaks the harness's dialect. It says whether the event is to be held until the turn
// is durable: it ends the answer, or may be the last one of a dialect whose streams just end.
func (c *call) hear(ev *engine.Event) (hold bool) {
	chunk, last := c.readNative(ev.Data)
	if chunk != nil {
		c.chunk(chunk)
	}
	if last && c.rec.Dialect != record.Google {
		c.answer.Done = true
	}
	return last
}

func (c *call) readNative(data []byte) (chunk []byte, last bool) {
	defer c.recover(&chunk)
	return c.native.Event(data)
}

// hearWhole reads a whole answer of such an engine and says whether it is one.
func (c *call) hearWhole(body []byte) (ok bool) {
	chunk := c.native.Whole(body)
	if chunk == nil {
		return false
	}
	c.chunk(chunk)
	return c.answer.Error == nil && len(c.answer.Choices) > 0
}

// serveNatively passes a question for a token count on to an engine that answers it in the harness's own dialect, and says
// whether it did.
func (s *Server) serveNatively(w http.ResponseWriter, r *http.Request, rt route, up *engine.Upstream, body []byte) bool {
	if up == nil || !slices.Contains(up.Profile().Native, rt.dialect) {
		return false
	}
	path := "/messages/count_tokens"
	if rt.dialect == record.Google {
		path = engine.GooglePath(rt.model, "countTokens")
	}
	resp, err := up.Do(r.Context(), &engine.Request{Method: http.MethodPost, Path: path, Query: withoutKey(r), Header: r.Header, RequestID: w.Header().Get(requestIDHeader), Body: body})
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	answer, err := engine.ReadAll(resp.Body, 0)
	if err != nil || resp.Status != http.StatusOK {
		return false // our own estimate is better than none
	}
	engine.CopyHeader(w.Header(), resp.Header)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.Write(answer) //nolint:errcheck // the client may be gone
	return true
}
