package engine

import (
	"encoding/json"
	"strings"
)

// ErrorText returns the message in an engine's error answer, in any of the shapes that engines use, or the answer's
// beginning.
func ErrorText(body []byte) string {
	var shape struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  string          `json:"detail"`
	}
	var nested struct {
		Message string `json:"message"`
	}
	var text string
	if json.Unmarshal(body, &shape) == nil {
		switch {
		case json.Unmarshal(shape.Error, &nested) == nil && nested.Message != "":
			return nested.Message
		case json.Unmarshal(shape.Error, &text) == nil && text != "":
			return text
		case shape.Message != "":
			return shape.Message
		case shape.Detail != "":
			return shape.Detail
		}
	}
	return Excerpt(body)
}

// ContextOverflow says whether an error answer means that the prompt is longer than the engine's context window. A
// max_tokens that is too large is a setting, not a full window, and stays an error.
func ContextOverflow(status int, body []byte) bool {
	if status != 400 && status != 413 && status != 422 && status != 500 {
		return false
	}
	text := strings.ToLower(string(body[:min(len(body), 4096)]))
	if strings.Contains(text, `"param":"max_tokens"`) || strings.Contains(text, "max_tokens=") {
		return false
	}
	for _, sign := range []string{
		"exceed_context_size_error",                                                    // llama.cpp
		"context_length_exceeded",                                                      // OpenAI
		"maximum context length",                                                       // vLLM, OpenAI
		"maximum model length",                                                         // vLLM
		"exceeds the maximum allowed length", "longer than the model's context length", // SGLang
		"prompt is too long",                           // Anthropic
		"exceeds the available context",                // llama.cpp
		"exceeds the maximum number of tokens allowed", // Google
	} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}
