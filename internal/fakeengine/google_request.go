package fakeengine

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// googleParams are the members that generateContent knows; snake case does as well.
func googleParams() []string {
	return []string{
		"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent", "labels", "model",
		"system_instruction", "tool_config", "generation_config", "safety_settings", "cached_content", "serviceTier", "store",
	}
}

// either gets a member by its two spellings.
func either(v gjson.Result, camel, snake string) gjson.Result {
	if r := v.Get(camel); r.Exists() {
		return r
	}
	return v.Get(snake)
}

func thinkingConfig(body []byte) gjson.Result {
	return either(either(gjson.ParseBytes(body), "generationConfig", "generation_config"), "thinkingConfig", "thinking_config")
}

// parseGoogle reads a request of generateContent into one of chat.
func (e *Engine) parseGoogle(r *http.Request, body []byte) (*Request, *apiError) {
	req, top, bad := nativeRequest(r, body)
	if bad != nil {
		return nil, bad
	}
	known := googleParams()
	top.ForEach(func(key, _ gjson.Result) bool {
		if !slices.Contains(known, key.String()) {
			bad = unknownName(key.String())
		}
		return bad == nil
	})
	if bad != nil {
		return nil, bad
	}
	contents := top.Get("contents").Array()
	if len(contents) == 0 {
		return nil, googleRefusal("* GenerateContentRequest.contents: contents is not specified\n")
	}
	req.Model = modelIn(r.URL.Path)
	req.setGoogleConfig(top)
	if system := googleText(either(top, "systemInstruction", "system_instruction")); system != "" {
		req.add(chatMessage{role: "system", content: system})
	}
	current := 0 // where the current turn begins: only its calls must be signed
	for i, content := range contents {
		if content.Get("role").String() != "model" && !content.Get("parts.#(functionResponse)").Exists() {
			current = i
		}
	}
	for i, content := range contents {
		if bad := req.addGoogle(i, content, e.opts.Reasoning && i > current); bad != nil {
			return nil, bad
		}
	}
	return req, nil
}

// upperTypes are the types of Google's own schemas.
var upperTypes = regexp.MustCompile(`"type"\s*:\s*"[A-Z]+"`)

func (r *Request) setGoogleConfig(top gjson.Result) {
	config := either(top, "generationConfig", "generation_config")
	if v := config.Get("temperature"); v.Exists() {
		r.Temperature = v.Num
	}
	if v := config.Get("seed"); v.Exists() {
		seed := v.Int()
		r.Seed = &seed
	}
	r.MaxTokens = int(either(config, "maxOutputTokens", "max_output_tokens").Int())
	for _, stop := range either(config, "stopSequences", "stop_sequences").Array() {
		r.stop = append(r.stop, stop.String())
	}
	budget := either(either(config, "thinkingConfig", "thinking_config"), "thinkingBudget", "thinking_budget")
	r.noThinking = budget.Exists() && budget.Int() == 0
	var manifest []byte
	for _, tool := range top.Get("tools").Array() {
		for _, fn := range either(tool, "functionDeclarations", "function_declarations").Array() {
			schema := either(fn, "parametersJsonSchema", "parameters_json_schema")
			if !schema.Exists() {
				schema = gjson.Parse(upperTypes.ReplaceAllStringFunc(fn.Get("parameters").Raw, strings.ToLower))
			}
			manifest = chatTool(manifest, fn.Get("name").String(), fn.Get("description").String(), schema)
		}
	}
	r.setTools(manifest)
	calling := either(either(top, "toolConfig", "tool_config"), "functionCallingConfig", "function_calling_config")
	switch calling.Get("mode").String() {
	case "ANY":
		r.toolChoice = gjson.Parse(`"required"`)
	case "NONE":
		r.toolChoice = gjson.Parse(`"none"`)
	}
}

func googleText(content gjson.Result) string {
	var texts []string
	for _, part := range content.Get("parts").Array() {
		texts = append(texts, part.Get("text").String())
	}
	return strings.Join(texts, "\n")
}

// addGoogle takes over one content, after a look at the signatures in it. The first call of a step must be signed where
// signed says so.
func (r *Request) addGoogle(at int, content gjson.Result, signed bool) *apiError {
	role := "user"
	if content.Get("role").String() == "model" {
		role = "assistant"
	}
	out := chatMessage{role: role}
	for i, part := range content.Get("parts").Array() {
		call := either(part, "functionCall", "function_call")
		name, args := call.Get("name").String(), call.Get("args").Raw
		if args == "" {
			args = "{}"
		}
		signature := either(part, "thoughtSignature", "thought_signature").String()
		switch {
		case signature == "" && call.Exists() && signed && len(out.calls) == 0:
			return missingSignature(name, at+i+1)
		case signature == "", signature == "skip_thought_signature_validator":
		default:
			sealed, ok := unseal(googlePurpose, signature)
			var was thoughtSeal
			if !ok || json.Unmarshal([]byte(sealed), &was) != nil || call.Exists() != (was.Call != "") || call.Exists() && was.Call != name+canonicalArguments(args) {
				return googleRefusal("Thought signature is not valid.")
			}
			out.reasoning = was.Thought
		}
		response := either(part, "functionResponse", "function_response")
		switch {
		case call.Exists():
			out.calls = append(out.calls, ToolCall{Name: name, Arguments: args})
		case response.Exists():
			r.add(chatMessage{role: "tool", content: response.Get("response").Raw})
		case part.Get("thought").Bool(): // a summary for people
		default:
			out.content += part.Get("text").String()
		}
	}
	if out.content != "" || role == "assistant" {
		r.add(out)
	}
	return nil
}

// missingSignature is Google's refusal of a call that was sampled with a thought and comes back without one.
func missingSignature(name string, position int) *apiError {
	return googleRefusal("Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing "+
		"thought_signature may lead to degraded model performance. Additional data, function call `default_api:%s` , position %s. Please refer to "+
		"https://ai.google.dev/gemini-api/docs/thought-signatures for more details.", name, strconv.Itoa(position))
}
