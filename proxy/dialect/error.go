package dialect

import (
	"net/http"
	"strconv"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// ErrorBody writes an error in a dialect's shape.
func ErrorBody(d record.Dialect, status int, param, text string) []byte {
	var b []byte
	switch d {
	case record.AnthropicMessages:
		b = append(b, `{"type":"error","error":{"type":`...)
		b = jsonscan.AppendQuote(b, anthropicType(status))
		b = append(b, `,"message":`...)
		b = jsonscan.AppendQuote(b, text)
		return append(b, "}}"...)
	case record.Google:
		b = append(b, `{"error":{"code":`...)
		b = strconv.AppendInt(b, int64(status), 10)
		b = append(b, `,"message":`...)
		b = jsonscan.AppendQuote(b, text)
		b = append(b, `,"status":`...)
		b = jsonscan.AppendQuote(b, googleStatus(status))
		return append(b, "}}"...)
	}
	b = append(b, `{"error":{"message":`...)
	b = jsonscan.AppendQuote(b, text)
	b = append(b, `,"type":`...)
	b = jsonscan.AppendQuote(b, openAIType(status))
	b = append(b, `,"param":`...)
	if param == "" {
		b = append(b, "null"...)
	} else {
		b = jsonscan.AppendQuote(b, param)
	}
	b = append(b, `,"code":`...)
	if status == http.StatusUnauthorized {
		b = append(b, `"invalid_api_key"`...)
	} else {
		b = append(b, "null"...)
	}
	return append(b, "}}"...)
}

func openAIType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

func anthropicType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusNotFound:
		return "not_found_error"
	case status == http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status == http.StatusServiceUnavailable:
		return "overloaded_error"
	case status >= 500:
		return "api_error"
	}
	return "invalid_request_error"
}

func googleStatus(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	case http.StatusConflict:
		return "FAILED_PRECONDITION"
	case http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED"
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return "UNAVAILABLE"
	}
	if status >= 500 {
		return "INTERNAL"
	}
	return "INVALID_ARGUMENT"
}
