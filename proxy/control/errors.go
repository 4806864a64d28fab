package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"captureproxy/export"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// Error is an answer that is none, on either side of the wire.
type Error struct {
	Status  int    // HTTP
	Field   string // of the request, where one is to blame
	Message string // what is wrong, and what to do
	Type    string // one of a few words that programs branch on; follows from Status
}

func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// invalid blames a field of the request.
func invalid(field, format string, args ...any) error {
	return &Error{Status: http.StatusBadRequest, Field: field, Message: fmt.Sprintf(format, args...)}
}

// errorBody is the form of every error.
type errorBody struct {
	Error errorText `json:"error"`
}

type errorText struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   string `json:"param,omitempty"`
}

var errorTypes = map[int]string{
	http.StatusBadRequest:            "invalid_request_error",
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusMethodNotAllowed:      "invalid_request_error",
	http.StatusConflict:              "conflict_error",
	http.StatusRequestEntityTooLarge: "invalid_request_error",
	http.StatusUnsupportedMediaType:  "invalid_request_error",
	http.StatusServiceUnavailable:    "unavailable_error",
}

func writeError(w http.ResponseWriter, e *Error) {
	kind := errorTypes[e.Status]
	if kind == "" {
		kind = "internal_error"
	}
	var body bytes.Buffer
	encodeTo(&body, errorBody{errorText{Message: e.Error(), Type: kind, Param: e.Field}})
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(body.Len())) // complete also while the client still sends
	w.WriteHeader(e.Status)
	body.WriteTo(w) //nolint:errcheck // the client may be gone
}

// writeJSON writes one JSON value. A failed write is the client's hanging up, which nobody can be told.
func writeJSON(w http.ResponseWriter, v any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	encodeTo(w, v)
}

func encodeTo(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(v) //nolint:errcheck // see writeJSON
}

// fail answers with an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := problemOf(err)
	switch e.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "2")
	}
	if e.Status >= 500 {
		a.Logger.Error("a control call failed", zap.String("request", w.Header().Get("X-Request-Id")), zap.String("route", r.Pattern), errField(err, r.PathValue("id")))
	}
	writeError(w, e)
}

// errField logs an error without the session's id, which is a credential.
func errField(err error, id string) zap.Field {
	text := err.Error()
	if id != "" {
		text = strings.ReplaceAll(text, id, "…")
	}
	return zap.String("error", text)
}

// problemOf says what an error means to the caller.
func problemOf(err error) *Error {
	var e *Error
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case errors.As(err, &e):
		return e
	case is(session.ErrUnknown), is(store.ErrNotFound):
		return &Error{Status: http.StatusNotFound, Message: "no such session"}
	case is(session.ErrConflict), is(session.ErrEnded), is(export.ErrEval):
		return &Error{Status: http.StatusConflict, Message: err.Error()}
	case is(session.ErrBadID):
		return &Error{Status: http.StatusBadRequest, Field: "session_id", Message: err.Error()}
	case is(session.ErrDraining):
		return &Error{Status: http.StatusServiceUnavailable, Message: err.Error()}
	case is(context.Canceled), is(context.DeadlineExceeded):
		return &Error{Status: http.StatusServiceUnavailable, Message: "this took too long: try again"}
	}
	return &Error{Status: http.StatusServiceUnavailable, Message: "the store does not do what it should, see /ready: " + err.Error()}
}
