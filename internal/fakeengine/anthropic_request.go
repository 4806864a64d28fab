package fakeengine

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// messagesParams are the parameters that Messages knows, its betas included.
func messagesParams() []string {
	return []string{
		"model", "messages", "max_tokens", "system", "metadata", "stop_sequences", "stream", "temperature", "top_k", "top_p", "tools",
		"tool_choice", "thinking", "service_tier", "container", "mcp_servers", "context_management", "output_config", "output_format",
		"cache_control", "inference_geo", "speed", "diagnostics",
	}
}

// parseMessages reads a request of Messages into one of chat.
func parseMessages(r *http.Request, body []byte) (*Request, *apiError) {
	req, top, bad := nativeRequest(r, body)
	if bad != nil {
		return nil, bad
	}
	known := messagesParams()
	top.ForEach(func(key, _ gjson.Result) bool {
		if !slices.Contains(known, key.String()) {
			bad = anthropicRefusal("%s: Extra inputs are not permitted", key.String())
		}
		return bad == nil
	})
	switch {
	case bad != nil:
		return nil, bad
	case !req.Has("model"):
		return nil, anthropicRefusal("model: Field required")
	case len(top.Get("messages").Array()) == 0:
		return nil, anthropicRefusal("messages: at least one message is required")
	case req.Temperature < 0 || req.Temperature > 1:
		return nil, anthropicRefusal("temperature: range: 0..1")
	case req.Has("max_tokens") && top.Get("max_tokens").Int() < 1:
		return nil, anthropicRefusal("max_tokens: must be greater than or equal to 1")
	}
	req.Model, req.Stream, req.MaxTokens = top.Get("model").String(), top.Get("stream").Bool(), int(top.Get("max_tokens").Int())
	for _, stop := range top.Get("stop_sequences").Array() {
		req.stop = append(req.stop, stop.String())
	}
	thinking := top.Get("thinking.type").String()
	req.noThinking = thinking != "enabled" && thinking != "adaptive"
	var manifest []byte
	for _, tool := range top.Get("tools").Array() {
		if schema := tool.Get("input_schema"); schema.Exists() { // others are the server's own
			manifest = chatTool(manifest, tool.Get("name").String(), tool.Get("description").String(), schema)
		}
	}
	req.setTools(manifest)
	switch choice := top.Get("tool_choice"); choice.Get("type").String() {
	case "any":
		req.toolChoice = gjson.Parse(`"required"`)
	case "none":
		req.toolChoice = gjson.Parse(`"none"`)
	case "tool":
		req.toolChoice = gjson.ParseBytes(append(appendString([]byte(`{"type":"function","function":{"name":`), choice.Get("name").String()), "}}"...))
	}
	if system := plainText(top.Get("system")); system != "" {
		req.add(chatMessage{role: "system", content: system})
	}
	messages := top.Get("messages").Array()
	for i, m := range messages {
		if bad := req.addAnthropic(i, m); bad != nil {
			return nil, bad
		}
	}
	return req, checkFinalThought(messages, req.noThinking)
}

// addAnthropic takes over one message, after a look at the signatures in it.
func (r *Request) addAnthropic(at int, m gjson.Result) *apiError {
	role, content := m.Get("role").String(), m.Get("content")
	if role != "user" && role != "assistant" && role != "system" {
		return anthropicRefusal("messages.%d.role: Input should be 'user' or 'assistant'", at)
	}
	if !content.IsArray() {
		r.add(chatMessage{role: role, content: content.String()})
		return nil
	}
	out := chatMessage{role: role}
	var texts []string
	for i, part := range content.Array() {
		path := messagePath(at, i)
		switch kind := part.Get("type").String(); kind {
		case "text":
			texts = append(texts, part.Get("text").String())
		case "thinking":
			signature := part.Get("signature")
			if !signature.Exists() {
				return anthropicRefusal("%s.thinking.signature: Field required", path)
			}
			if text, ok := unseal(thinkingPurpose, signature.String()); !ok || text != part.Get("thinking").String() {
				return anthropicRefusal("%s: Invalid `signature` in `thinking` block", path)
			}
			out.reasoning += part.Get("thinking").String()
		case "redacted_thinking":
			text, ok := unseal(redactedPurpose, part.Get("data").String())
			if !ok {
				return anthropicRefusal("%s: Invalid `data` in `redacted_thinking` block", path)
			}
			out.reasoning += text
		case "tool_use":
			if !part.Get("input").IsObject() {
				return anthropicRefusal("%s.tool_use.input: Input should be a valid dictionary", path)
			}
			out.calls = append(out.calls, ToolCall{Name: part.Get("name").String(), Arguments: part.Get("input").Raw})
		case "tool_result":
			r.add(chatMessage{role: "tool", content: plainText(part.Get("content"))})
		default:
			texts = append(texts, "<|"+kind+"|>")
		}
	}
	out.content = strings.Join(texts, "\n")
	if out.content != "" || role == "assistant" {
		r.add(out)
	}
	return nil
}

// checkFinalThought refuses a last assistant message whose thought was left out, as its tool uses tell.
func checkFinalThought(messages []gjson.Result, noThinking bool) *apiError {
	for i := len(messages) - 1; i >= 0 && !noThinking; i-- {
		if messages[i].Get("role").String() != "assistant" {
			continue
		}
		parts := messages[i].Get("content").Array()
		if len(parts) == 0 || strings.HasSuffix(parts[0].Get("type").String(), "thinking") {
			return nil
		}
		for _, part := range parts {
			if strings.HasPrefix(part.Get("id").String(), thoughtUsePrefix) {
				return anthropicRefusal("%s.type: "+thinkingIsNotText, messagePath(i, 0), parts[0].Get("type").String())
			}
		}
		return nil
	}
	return nil
}
