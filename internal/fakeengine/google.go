package fakeengine

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// googleWire is Google's Gemini API: generateContent, whole or in chunks, with thought signatures, and its chat endpoint.
func googleWire() *wire {
	form := hostedForm(hostedStyle{callID: "function-call-"})
	form.check = checkGoogleChat
	return &wire{
		owner:       "google",
		mode:        Raw,
		routes:      googleRoutes,
		auth:        googleAuth,
		missing:     googleMissing,
		spell:       spellGoogle,
		compat:      isGoogleChat,
		spellCompat: spellGoogleChat,
		bestFirst:   true,
		chunkTokens: 4,
		chat:        form,
	}
}

const (
	googleModels = "/v1beta/models"
	googleChat   = "/v1beta/openai/"
)

func isGoogleChat(path string) bool { return strings.HasPrefix(path, googleChat) }

func googleRoutes(path string) (route, bool) {
	switch path {
	case googleModels:
		return route{http.MethodGet, (*Engine).googleModelList}, true
	case googleChat + "chat/completions":
		return route{http.MethodPost, (*Engine).chat}, true
	case googleChat + "models":
		return route{http.MethodGet, (*Engine).hostedModels}, true
	}
	name, ok := strings.CutPrefix(path, googleModels+"/")
	if !ok {
		return route{}, false
	}
	_, method, called := strings.Cut(name, ":")
	switch {
	case !called:
		return route{http.MethodGet, (*Engine).googleModel}, true
	case method == "generateContent":
		return route{http.MethodPost, func(e *Engine, c *call) { e.generateContent(c, false) }}, true
	case method == "streamGenerateContent":
		return route{http.MethodPost, func(e *Engine, c *call) { e.generateContent(c, true) }}, true
	case method == "countTokens":
		return route{http.MethodPost, (*Engine).googleCount}, true
	}
	return route{}, false
}

// modelIn is the model that a path names.
func modelIn(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, googleModels+"/"), ":")
	return name
}

func googleAuth(e *Engine, r *http.Request) *apiError {
	key := r.Header.Get("X-Goog-Api-Key")
	if key == "" {
		key = r.URL.Query().Get("key")
	}
	if isGoogleChat(r.URL.Path) {
		key = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	switch {
	case key == "":
		return &apiError{Status: http.StatusForbidden, Message: "Method doesn't allow unregistered callers (callers without established identity). " +
			"Please use API Key or other form of API consumer identity to call this API."}
	case e.opts.Key != "" && key != e.opts.Key:
		return googleRefusal("API key not valid. Please pass a valid API key.")
	}
	return nil
}

func googleRefusal(format string, args ...any) *apiError {
	return &apiError{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

func googleMissing(r *http.Request, _ int) *apiError {
	return &apiError{Status: http.StatusNotFound, Message: "Requested entity was not found: " + r.URL.Path}
}

// spellGoogle names errors by their status.
func spellGoogle(dst []byte, bad *apiError, _ bool) []byte {
	name, message := "UNKNOWN", bad.Message
	switch bad.Status {
	case http.StatusBadRequest:
		name = "INVALID_ARGUMENT"
	case http.StatusUnauthorized:
		name = "UNAUTHENTICATED"
	case http.StatusForbidden:
		name = "PERMISSION_DENIED"
	case http.StatusNotFound:
		name = "NOT_FOUND"
	case http.StatusTooManyRequests:
		name = "RESOURCE_EXHAUSTED"
	case http.StatusInternalServerError:
		name = "INTERNAL"
	case http.StatusServiceUnavailable:
		name, message = "UNAVAILABLE", "The model is overloaded. Please try again later."
	}
	dst = appendInt(dst, `{"error":{"code":`, bad.Status)
	return append(appendString(append(dst, `,"message":`...), message), `,"status":"`+name+`"}}`...)
}

// spellGoogleChat puts the chat endpoint's errors into an array, as Google does.
func spellGoogleChat(dst []byte, bad *apiError, event bool) []byte {
	return append(spellGoogle(append(dst, '['), bad, event), ']')
}

func unknownName(name string) *apiError {
	return googleRefusal("Invalid JSON payload received. Unknown name \"%s\": Cannot find field.", name)
}

func checkGoogleChat(_ *Engine, req *Request) *apiError {
	known := openaiChatParams()
	var bad *apiError
	gjson.ParseBytes(req.Body).ForEach(func(key, _ gjson.Result) bool {
		if !slices.Contains(known, key.String()) && key.String() != "extra_body" {
			bad = unknownName(key.String())
		}
		return bad == nil
	})
	if bad == nil && len(req.Messages) == 0 {
		bad = googleRefusal("contents is not specified")
	}
	return bad
}

func (e *Engine) appendGoogleModel(dst []byte, name string) []byte {
	dst = appendString(append(dst, `{"name":`...), "models/"+name)
	dst = appendString(append(dst, `,"version":"001","displayName":`...), name)
	dst = appendInt(dst, `,"inputTokenLimit":`, e.opts.MaxModelLen)
	return append(dst, `,"outputTokenLimit":65536,"supportedGenerationMethods":["generateContent","countTokens"]}`...)
}

func (e *Engine) googleModelList(c *call) {
	c.json(http.StatusOK, append(e.appendGoogleModel([]byte(`{"models":[`), e.opts.Model), "]}"...))
}

func (e *Engine) googleModel(c *call) {
	c.json(http.StatusOK, e.appendGoogleModel(nil, modelIn(c.r.URL.Path)))
}

// generateContent answers both methods. A stream is an array unless alt=sse asks for events.
func (e *Engine) generateContent(c *call, stream bool) {
	req, bad := e.parseGoogle(c.r, c.body)
	if bad != nil {
		c.fail(bad)
		return
	}
	req.Stream = stream
	thoughts := thinkingConfig(c.body).Get("includeThoughts").Bool()
	e.answerNative(c, req, nativeCall{
		room: func(e *Engine, req *Request, prompt int) (int, *apiError) {
			return roomClamped(e, req, prompt, func() *apiError {
				return googleRefusal("The input token count (%d) exceeds the maximum number of tokens allowed (%d).", prompt, e.opts.MaxModelLen)
			})
		},
		whole:  func(a *answer) []byte { return googleChunks{a, thoughts}.appendWhole(nil) },
		stream: func(a *answer) native { return googleChunks{a, thoughts} },
	})
}

func (e *Engine) googleCount(c *call) {
	body := c.body
	if inner := gjson.GetBytes(body, "generateContentRequest"); inner.IsObject() {
		body = []byte(inner.Raw)
	}
	req, bad := e.parseGoogle(c.r, body)
	if bad != nil {
		c.fail(bad)
		return
	}
	n := len(promptOf(c.vocab, req))
	dst := appendInt(nil, `{"totalTokens":`, n)
	c.json(http.StatusOK, append(appendInt(dst, `,"promptTokensDetails":[{"modality":"TEXT","tokenCount":`, n), "}]}"...))
}
