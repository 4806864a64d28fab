package fakeengine

import (
	"net/http"
	"strconv"
)

// apiError is an answer that refuses.
type apiError struct {
	Status  int
	Message string
	Type    string
	Param   string // "" is null on the wire
	Code    string // a hosted API's word for it, "" is null; vLLM and SGLang give the status
	More    string // further members, as JSON
}

func badRequest(param, message string) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: "BadRequestError", Param: param, Message: message}
}

// outOfRange is a refusal that names the value too.
func outOfRange(param, message, value string) *apiError {
	return badRequest(param, message+" (parameter="+param+", value="+value+")")
}

// validation is a refusal by the request's schema, which vLLM spells with a type of its own.
func validation(param, text string) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: "Bad Request", Param: param, Message: "1 validation error:\n  " + text}
}

// appendJSON appends the error as an answer's body, or, spaced as Python does by default, as a stream's event.
func (e *apiError) appendJSON(dst []byte, event bool) []byte {
	colon, comma := `":`, `,"`
	if event {
		colon, comma = `": `, `, "`
	}
	dst = append(dst, `{"error`+colon+`{"message`+colon...)
	dst = appendString(dst, e.Message)
	dst = append(dst, comma+"type"+colon...)
	dst = appendString(dst, e.Type)
	dst = append(dst, comma+"param"+colon...)
	if e.Param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, e.Param)
	}
	dst = append(dst, comma+"code"+colon...)
	dst = strconv.AppendInt(dst, int64(e.Status), 10)
	return append(dst, "}}"...)
}

// setHeader sets a response header.
func (c *call) setHeader(name, value string) { c.w.Header().Set(name, value) }

// json answers with a body that is JSON.
func (c *call) json(status int, body []byte) {
	c.setHeader("Content-Type", "application/json")
	c.setHeader("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	if _, err := c.w.Write(body); err != nil {
		c.gone = true
	}
}

func (c *call) fail(e *apiError) { c.json(e.Status, c.spell(nil, e, false)) }

// missing answers where a path or method has no handler.
func (c *call) missing(status int) {
	if c.wire.missing == nil {
		text := http.StatusText(status)
		c.detail(status, text)
		return
	}
	c.fail(c.wire.missing(c.r, status))
}

// detail answers as vLLM's web framework does where no handler of vLLM's own was reached.
func (c *call) detail(status int, text string) {
	c.json(status, append(appendString([]byte(`{"detail":`), text), '}'))
}
