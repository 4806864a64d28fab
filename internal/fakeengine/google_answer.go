package fakeengine

import (
	"encoding/json"
	"net/http"

	"github.com/tidwall/gjson"
)

// thoughtSeal is what a thought signature hides: the thought, and the call that it belongs to.
type thoughtSeal struct{ Thought, Call string }

const googlePurpose = "google"

func (a googleChunks) signature(call string) string {
	thought := ""
	for _, b := range a.choices[0].blocks() {
		if b.kind == kindReasoning {
			thought = string(b.text)
		}
	}
	text, err := json.Marshal(thoughtSeal{thought, call})
	if err != nil {
		panic("fakeengine: two strings are no JSON: " + err.Error())
	}
	return seal(googlePurpose, string(text))
}

// googleChunks writes answers of generateContent.
type googleChunks struct {
	*answer
	thoughts bool // shown
}

// appendPart appends a block as a part; the first call after a thought is signed.
func (a googleChunks) appendPart(dst []byte, b block, text []byte) []byte {
	switch b.kind {
	case kindReasoning:
		return append(appendString(append(dst, `{"text":`...), text), `,"thought":true}`...)
	case kindContent:
		return append(appendString(append(dst, `{"text":`...), text), '}')
	}
	dst = appendString(append(dst, `{"functionCall":{"name":`...), b.name)
	dst = append(append(append(dst, `,"args":`...), b.text...), '}')
	for _, first := range a.choices[0].blocks() {
		if first.kind == kindCall {
			if first.index == b.index && a.choices[0].reasoning > 0 {
				dst = appendString(append(dst, `,"thoughtSignature":`...), a.signature(b.name+string(b.text)))
			}
			break
		}
	}
	return append(dst, '}')
}

// shows says whether a block makes a part at all.
func (a googleChunks) shows(b block) bool {
	return b.kind == kindContent || b.kind == kindReasoning && a.thoughts || b.kind == kindCall && b.whole
}

// signsText says that an answer without a call carries its signature behind its text.
func (a googleChunks) signsText() bool { return a.choices[0].reasoning > 0 && !a.choices[0].hasCalls }

func (a googleChunks) appendWhole(dst []byte) []byte {
	var parts []byte
	for _, b := range a.choices[0].blocks() {
		if !a.shows(b) {
			continue
		}
		if parts != nil {
			parts = append(parts, ',')
		}
		parts = a.appendPart(parts, b, b.text)
		if b.kind == kindContent && a.signsText() {
			parts = appendString(append(parts[:len(parts)-1], `,"thoughtSignature":`...), a.signature(""))
			parts = append(parts, '}')
		}
	}
	return a.appendCandidate(dst, parts, true)
}

func (a googleChunks) appendCandidate(dst, parts []byte, last bool) []byte {
	g := a.choices[0]
	dst = append(dst, `{"candidates":[{"content":{`...)
	if parts != nil {
		dst = append(append(append(dst, `"parts":[`...), parts...), "],"...)
	}
	dst = append(dst, `"role":"model"}`...)
	if last {
		reason := "STOP"
		switch {
		case a.fault.Kind == FaultContentFilter:
			reason = "SAFETY"
		case g.finish == "length":
			reason = "MAX_TOKENS"
		}
		dst = append(dst, `,"finishReason":"`+reason+`"`...)
	}
	dst = append(dst, `,"index":0`...)
	if last && gjson.GetBytes(a.req.Body, "generationConfig.responseLogprobs").Bool() {
		dst = a.appendLogprobsResult(append(dst, `,"logprobsResult":`...))
	}
	dst = append(dst, `}]`...)
	if a.fault.Kind != FaultNoUsage {
		completion := len(g.ids) - g.reasoning
		if a.fault.Kind == FaultWrongUsage {
			completion++
		}
		dst = appendInt(dst, `,"usageMetadata":{"promptTokenCount":`, len(a.prompt))
		if last {
			dst = appendInt(dst, `,"candidatesTokenCount":`, completion)
		}
		dst = appendInt(dst, `,"totalTokenCount":`, len(a.prompt)+completion+g.reasoning)
		dst = appendInt(dst, `,"promptTokensDetails":[{"modality":"TEXT","tokenCount":`, len(a.prompt))
		dst = append(dst, `}]`...)
		if g.reasoning > 0 {
			dst = appendInt(dst, `,"thoughtsTokenCount":`, g.reasoning)
		}
		dst = append(dst, '}')
	}
	dst = appendString(append(dst, `,"modelVersion":`...), modelIn(a.r.URL.Path))
	return append(appendString(append(dst, `,"responseId":`...), a.id), '}')
}

// appendLogprobsResult appends the logprobs of visible text, with ids of the candidates.
func (a googleChunks) appendLogprobsResult(dst []byte) []byte {
	g := a.choices[0]
	dst = append(dst, `{"chosenCandidates":[`...)
	n := 0
	for i := range g.ids {
		if !g.inContent(i) {
			continue
		}
		if n++; n > 1 {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"token":`...), g.row(i))
		dst = append(appendInt(dst, `,"tokenId":`, int(g.ids[i])), `,"logProbability":`...)
		dst = append(a.fault.appendLogprob(dst, a.sampler.at(i, g.variant).sampled(), i == len(g.ids)-1), '}')
	}
	return append(dst, "]}"...)
}

func (a googleChunks) event(dst, parts []byte, last bool) []byte {
	return append(a.appendCandidate(append(dst, "data: "...), parts, last), "\n\n"...)
}

func (a googleChunks) open(dst []byte) []byte { return dst }

func (a googleChunks) begin(dst []byte, _ block) []byte { return dst }

func (a googleChunks) delta(dst []byte, b block, text []byte) []byte {
	if b.kind == kindCall || !a.shows(b) {
		return dst
	}
	return a.event(dst, a.appendPart(nil, b, text), false)
}

// end sends a call, which always comes whole.
func (a googleChunks) end(dst []byte, b block) []byte {
	if b.kind != kindCall || !a.shows(b) {
		return dst
	}
	return a.event(dst, a.appendPart(nil, b, nil), false)
}

func (a googleChunks) close(dst []byte) []byte {
	part := []byte(`{"text":""`)
	if a.signsText() {
		part = appendString(append(part, `,"thoughtSignature":`...), a.signature(""))
	}
	return a.event(dst, append(part, '}'), true)
}

func (a googleChunks) fail(dst []byte, _ *apiError) []byte {
	bad := &apiError{Status: http.StatusServiceUnavailable}
	return append(spellGoogle(append(dst, "data: "...), bad, true), "\n\n"...)
}

// reframe spells events with Google's line ends, or as elements of an array.
func (a googleChunks) reframe(event []byte, n int) []byte {
	body := event[:len(event)-2]
	if a.r.URL.Query().Get("alt") == "sse" {
		return append(append([]byte(nil), body...), "\r\n\r\n"...)
	}
	body = body[len("data: "):]
	if n == 0 {
		return append([]byte("["), body...)
	}
	return append([]byte(",\r\n"), body...)
}

// frameOf says how the stream labels itself and what ends it.
func (a googleChunks) frameOf() (contentType, closing string) {
	if a.r.URL.Query().Get("alt") == "sse" {
		return "text/event-stream", ""
	}
	return "application/json; charset=UTF-8", "]"
}
