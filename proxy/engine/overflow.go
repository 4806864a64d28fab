package engine

import "strings"

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
