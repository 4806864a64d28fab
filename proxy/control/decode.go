package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxBody bounds a request's body.
const maxBody = 1 << 20

// decode reads a request's body, a JSON object, into dst. Fields that dst does not have are refused by name: a mistyped
// one would otherwise be ignored. mayBeEmpty admits no body at all.
func decode(w http.ResponseWriter, r *http.Request, dst any, mayBeEmpty bool) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return &Error{Status: http.StatusRequestEntityTooLarge, Message: "the body is larger than 1 MiB"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return &Error{Status: http.StatusRequestTimeout, Message: "the body came too slowly, and not to its end"}
	case err != nil:
		return &Error{Status: http.StatusBadRequest, Message: "the body could not be read to its end"}
	case len(body) == 0 && mayBeEmpty:
		return nil
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return &Error{Status: http.StatusUnsupportedMediaType, Message: "the body must be JSON and say so: Content-Type: application/json"}
	}
	if first := bytes.TrimLeft(body, " \t\r\n"); len(first) == 0 || first[0] != '{' || !utf8.Valid(body) {
		return &Error{Status: http.StatusBadRequest, Message: "the body must be one JSON object, in UTF-8"}
	}
	return explain(strict(body, dst))
}

// strict decodes one JSON value.
func strict(body []byte, dst any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(dst); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows the JSON object")
	}
	return nil
}

// explain blames the field that a decoder could not read.
func explain(err error) error {
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &kind):
		return invalid(kind.Field, "want %s, got %s", describe(kind.Type), kind.Value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok { // encoding/json has no type for it
		if field, err := strconv.Unquote(name); err == nil {
			return invalid(field, "there is no such field")
		}
	}
	return &Error{Status: http.StatusBadRequest, Message: "the body cannot be read as JSON: " + err.Error()}
}

func describe(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Whole]():
		return "a whole number"
	case t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a string"
	}
	return "an object"
}

// Whole is a whole number, however JSON spells it: 3 and 3.0 are the same.
type Whole int64

// UnmarshalJSON refuses fractions, and what a float64 cannot hold exactly.
func (n *Whole) UnmarshalJSON(b []byte) error {
	if v, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		*n = Whole(v)
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil || v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		return &json.UnmarshalTypeError{Value: string(b), Type: reflect.TypeFor[Whole]()}
	}
	*n = Whole(v)
	return nil
}

// int returns the number as records hold it.
func (n *Whole) int() *int {
	if n == nil {
		return nil
	}
	v := int(*n)
	return &v
}

// Optional is a field that may be absent, null or a value, three different things where null removes.
type Optional[T any] struct {
	Set   bool // not absent
	Value *T   // nil for null
}

// Some is a field with a value.
func Some[T any](v T) Optional[T] { return Optional[T]{Set: true, Value: &v} }

// Null is a field that says null.
func Null[T any]() Optional[T] { return Optional[T]{Set: true} }

// IsZero reports whether the field is absent; for encoding/json's omitzero.
func (o Optional[T]) IsZero() bool { return !o.Set }

// MarshalJSON writes the value.
func (o Optional[T]) MarshalJSON() ([]byte, error) { return json.Marshal(o.Value) }

// UnmarshalJSON reads the value. It is not called when the field is absent.
func (o *Optional[T]) UnmarshalJSON(b []byte) error {
	*o = Optional[T]{Set: true}
	if string(b) == "null" {
		return nil
	}
	o.Value = new(T)
	return strict(b, o.Value)
}

// query reads a request's query. Parameters that are not known are refused by name, as fields of a body are.
func query(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &Error{Status: http.StatusBadRequest, Message: "the query cannot be read"}
	}
	for name := range q {
		if !slices.Contains(known, name) {
			return nil, invalid(name, "there is no such query parameter")
		}
	}
	return q, nil
}

// flag reads a boolean parameter; its bare name says yes.
func flag(q url.Values, name string) (bool, error) {
	if !q.Has(name) {
		return false, nil
	}
	text := q.Get(name)
	if text == "" {
		return true, nil
	}
	v, err := strconv.ParseBool(strings.ToLower(text))
	if err != nil {
		return false, invalid(name, "want true or false, got %q", text)
	}
	return v, nil
}
