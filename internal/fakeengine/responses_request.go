package fakeengine

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
)

const responsesPurpose = "responses"

// keptResponse is what the engine stores of a response.
type keptResponse struct {
	messages           []Message // the conversation up to and including it
	thoughtID, thought string
}

// keptResponses remembers the last responses that were to be stored.
type keptResponses struct {
	limit int

	mu       sync.Mutex
	byID     map[string]keptResponse
	thoughts map[string]string // by the id of their item
	order    []string          // keys of byID, oldest first
}

func (k *keptResponses) keep(id string, r keptResponse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID == nil {
		k.byID, k.thoughts = make(map[string]keptResponse), make(map[string]string)
	}
	if len(k.order) == k.limit {
		delete(k.thoughts, k.byID[k.order[0]].thoughtID)
		delete(k.byID, k.order[0])
	}
	k.order = push(k.order, id, k.limit)
	k.byID[id] = r
	if r.thoughtID != "" {
		k.thoughts[r.thoughtID] = r.thought
	}
}

func (k *keptResponses) get(id string) (keptResponse, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.byID[id]
	return r, ok
}

func (k *keptResponses) thought(id string) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, ok := k.thoughts[id]
	return text, ok
}

func responsesParams() []string {
	return []string{
		"background", "client_metadata", "context_management", "conversation", "include", "input", "instructions", "max_output_tokens",
		"max_tool_calls", "metadata", "model", "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key",
		"prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature", "text",
		"tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
	}
}

// parseResponses reads a request of Responses into one of chat.
func (e *Engine) parseResponses(r *http.Request, body []byte) (*Request, *apiError) {
	req, top, bad := nativeRequest(r, body)
	if bad != nil {
		return nil, bad
	}
	req.Model, req.Stream = top.Get("model").String(), top.Get("stream").Bool()
	if req.Model != e.opts.Model {
		return nil, openaiRefusal("model", "model_not_found", "The requested model '"+req.Model+"' does not exist.")
	}
	known := responsesParams()
	top.ForEach(func(key, v gjson.Result) bool {
		switch name := key.String(); {
		case !slices.Contains(known, name):
			bad = openaiRefusal(name, "unknown_parameter", "Unknown parameter: '"+name+"'.")
		case e.opts.Wire == WireOpenAI && (name == "temperature" || name == "top_p") && v.Type != gjson.Null && v.Num != 1:
			bad = unsupportedParam(name)
		case name == "max_output_tokens" && v.Type != gjson.Null && v.Int() < 16:
			bad = openaiRefusal(name, "integer_below_min_value", "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got "+
				v.Raw+" instead.")
		}
		return bad == nil
	})
	if bad != nil {
		return nil, bad
	}
	req.MaxTokens = int(top.Get("max_output_tokens").Int())
	var manifest []byte
	for _, tool := range top.Get("tools").Array() {
		if tool.Get("type").String() == "function" { // others are the server's own, or not for a script
			manifest = chatTool(manifest, tool.Get("name").String(), tool.Get("description").String(), tool.Get("parameters"))
		}
	}
	req.setTools(manifest)
	req.toolChoice = top.Get("tool_choice")
	if name := req.toolChoice.Get("name"); name.Exists() {
		req.toolChoice = gjson.ParseBytes(append(appendString([]byte(`{"type":"function","function":{"name":`), name.String()), "}}"...))
	}
	if id := top.Get("previous_response_id").String(); id != "" {
		kept, ok := e.responsesKept.get(id)
		if !ok {
			return nil, openaiRefusal("previous_response_id", "previous_response_not_found", "Previous response with id '"+id+"' not found.")
		}
		req.Messages = append(req.Messages, kept.messages...)
	}
	if text := top.Get("instructions").String(); text != "" && len(req.Messages) == 0 {
		req.add(chatMessage{role: "system", content: text})
	}
	if input := top.Get("input"); input.Type == gjson.String {
		req.add(chatMessage{role: "user", content: input.String()})
	} else if bad := e.addItems(req, input.Array()); bad != nil {
		return nil, bad
	}
	return req, nil
}

// addItems takes over the items of an input. What the model said in one answer comes as several of them in a row.
func (e *Engine) addItems(req *Request, items []gjson.Result) *apiError {
	said := chatMessage{role: "assistant"}
	flush := func() {
		req.add(said)
		said = chatMessage{role: "assistant"}
	}
	for i, item := range items {
		at := "input[" + strconv.Itoa(i) + "]"
		switch kind := item.Get("type").String(); kind {
		case "reasoning":
			thought, bad := e.thoughtOf(item, at)
			if bad != nil {
				return bad
			}
			flush() // a thought opens an answer
			said.reasoning = thought
		case "function_call", "custom_tool_call":
			id := item.Get("id").String()
			if strings.HasPrefix(id, thoughtCallPrefix) && said.reasoning == "" {
				return openaiRefusal("input", "", "Item '"+id+"' of type 'function_call' was provided without its required 'reasoning' item: 'rs_"+
					id[len(thoughtCallPrefix):]+"'.")
			}
			arguments := item.Get("arguments").String()
			if kind == "custom_tool_call" {
				arguments = string(appendString([]byte(`{"input":`), item.Get("input").String())) + "}"
			}
			said.calls = append(said.calls, ToolCall{item.Get("name").String(), arguments})
		case "function_call_output", "custom_tool_call_output":
			flush()
			req.add(chatMessage{role: "tool", content: plainText(item.Get("output"))})
		case "", "message":
			text := plainText(item.Get("content"))
			if role := item.Get("role").String(); role != "assistant" {
				flush()
				req.add(chatMessage{role: role, content: text})
			} else {
				if said.content != "" || len(said.calls) > 0 {
					flush()
				}
				said.content = text
			}
		default: // items of the server's own tools
			flush()
		}
	}
	flush()
	return nil
}

// thoughtOf reads a reasoning item back: from its encrypted content, or from what is stored.
func (e *Engine) thoughtOf(item gjson.Result, at string) (string, *apiError) {
	id := item.Get("id").String()
	if sealed := item.Get("encrypted_content"); sealed.Type == gjson.String {
		thought, ok := unseal(responsesPurpose, sealed.String())
		if !ok {
			return "", openaiRefusal(at, "invalid_encrypted_content", "The encrypted content for item "+id+
				" could not be verified. Reason: Encrypted content could not be decrypted or parsed.")
		}
		return thought, nil
	}
	thought, ok := e.responsesKept.thought(id)
	if !ok {
		bad := openaiRefusal("input", "", "Item with id '"+id+"' not found. Items are not persisted when `store` is set to false. "+
			"Try again with `store` set to true, or remove this item from your input.")
		bad.Status = http.StatusNotFound
		return "", bad
	}
	return thought, nil
}
