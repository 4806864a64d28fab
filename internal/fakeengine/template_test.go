package fakeengine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"captureproxy/tokenize"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"
)

// respell writes a JSON value as some harness might: other key order, spacing and escapes.
func respell(t *rapid.T, v gjson.Result) string {
	space := rapid.SampledFrom([]string{"", " ", "\n  "}).Draw(t, "space")
	switch {
	case v.IsObject():
		var members []string
		v.ForEach(func(k, e gjson.Result) bool {
			members = append(members, respellString(t, k.String())+space+":"+space+respell(t, e))
			return true
		})
		members = rapid.Permutation(members).Draw(t, "members")
		return "{" + space + strings.Join(members, space+",") + space + "}"
	case v.IsArray():
		var elements []string
		for _, e := range v.Array() {
			elements = append(elements, respell(t, e))
		}
		return "[" + strings.Join(elements, ","+space) + "]"
	case v.Type == gjson.String:
		return respellString(t, v.String())
	}
	return v.Raw
}

// respellString escapes more or less than needed.
func respellString(t *rapid.T, s string) string {
	if !rapid.Bool().Draw(t, "escape") {
		plain, _ := json.Marshal(s)
		return string(plain)
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r > 0xFFFF {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String() + `"`
}

func marshal(t tester, v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(out)
}

// echoed spells a content as harnesses do when they send history back.
func echoed(t *rapid.T, content string) string {
	text := marshal(t, content)
	spellings := []string{`"content":` + text, `"content":[{"type":"text","text":` + text + `}]`}
	if content == "" {
		spellings = append(spellings, `"content":null`, `"refusal":null`)
	}
	return rapid.SampledFrom(spellings).Draw(t, "content")
}

func genArguments() *rapid.Generator[map[string]any] {
	value := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.IntRange(-1000, 1000), func(n int) any { return n }),
		rapid.Map(rapid.Float64Range(-1e6, 1e6), func(f float64) any { return f }),
		rapid.Map(rapid.SliceOfN(rapid.String(), 0, 3), func(s []string) any { return append([]string{}, s...) }),
		rapid.Map(rapid.MapOfN(rapid.String(), rapid.Bool(), 0, 3), func(m map[string]bool) any { return m }),
		rapid.Just[any](nil),
	)
	return rapid.MapOfN(rapid.String(), value, 0, 4)
}

func genReply() *rapid.Generator[Reply] {
	return rapid.Custom(func(t *rapid.T) Reply {
		r := Reply{Content: rapid.String().Draw(t, "content")}
		if rapid.Bool().Draw(t, "thinks") {
			r.Reasoning = rapid.String().Draw(t, "reasoning")
		}
		for range rapid.IntRange(0, 2).Draw(t, "calls") {
			args := marshal(t, genArguments().Draw(t, "arguments"))
			r.Calls = append(r.Calls, ToolCall{Name: rapid.StringN(1, 10, -1).Draw(t, "name"), Arguments: args})
		}
		return r
	})
}

// history spells an answer's message as a harness sends it back.
func history(t *rapid.T, message gjson.Result) string {
	parts := []string{`"role":"assistant"`, echoed(t, message.Get("content").String())}
	if reasoning := message.Get("reasoning").String(); reasoning != "" {
		field := rapid.SampledFrom([]string{"reasoning", "reasoning_content"}).Draw(t, "field")
		parts = append(parts, `"`+field+`":`+respellString(t, reasoning))
	}
	var calls []string
	for _, tc := range message.Get("tool_calls").Array() {
		args := respell(t, gjson.Parse(tc.Get("function.arguments").String()))
		calls = append(calls, fmt.Sprintf(`{"type":"function","id":%s,"function":{"arguments":%s,"name":%s}}`,
			tc.Get("id").Raw, respellString(t, args), tc.Get("function.name").Raw))
	}
	if calls != nil {
		parts = append(parts, `"tool_calls":[`+strings.Join(calls, ",")+`]`)
	}
	return "{" + strings.Join(rapid.Permutation(parts).Draw(t, "parts"), ", ") + "}"
}

func ids(v gjson.Result) []int32 {
	var out []int32
	for _, e := range v.Array() {
		out = append(out, int32(e.Int()))
	}
	return out
}

// In an unbroken conversation every prompt begins with the previous prompt and what was sampled for it, whatever was
// said and however the harness respells it.
func TestPromptsExtend(t *testing.T) {
	var next Reply
	e := New(Options{Script: func(*Request, uint64) Reply { return next }})
	rapid.Check(t, func(t *rapid.T) {
		tools := ""
		if rapid.Bool().Draw(t, "tools") {
			tools = `,"tools":[` + bashTool + `]`
		}
		messages := []string{}
		if rapid.Bool().Draw(t, "system") {
			messages = append(messages, `{"role":"system",`+echoed(t, rapid.String().Draw(t, "system text"))+`}`)
		}
		messages = append(messages, `{"role":"user",`+echoed(t, rapid.String().Draw(t, "user text"))+`}`)
		var before []int32
		for turn := range rapid.IntRange(1, 4).Draw(t, "turns") {
			next = genReply().Draw(t, "reply")
			body := `{"messages":[` + strings.Join(messages, ",") + `],"return_token_ids":true,"logprobs":true` + tools + `}`
			answer := post(t, e, []byte(body))
			prompt, sampled := ids(gjson.Get(answer, "prompt_token_ids")), ids(gjson.Get(answer, "choices.0.token_ids"))
			if len(before) > len(prompt) || !slices.Equal(before, prompt[:len(before)]) {
				t.Fatalf("turn %d: the prompt does not begin with what came before\nbefore %v\nprompt %v", turn, before, prompt)
			}
			if sampled[len(sampled)-1] != EndID {
				t.Fatalf("the end of the message was not sampled: %v", sampled)
			}
			if rows := gjson.Get(answer, "choices.0.logprobs.content.#").Int(); int(rows) != len(sampled) {
				t.Fatalf("%d rows for %d ids", rows, len(sampled))
			}
			truth, ok := e.Truth(gjson.Get(answer, "id").String())
			if !ok || !slices.Equal(truth.Prompt, prompt) || !slices.Equal(truth.Sampled[0], sampled) {
				t.Fatalf("the truth is another: %v %v", truth, ok)
			}
			before = slices.Concat(prompt, sampled)
			messages = append(messages, history(t, gjson.Get(answer, "choices.0.message")))
			role := rapid.SampledFrom([]string{"user", "tool"}).Draw(t, "role")
			messages = append(messages, `{"role":"`+role+`",`+echoed(t, rapid.String().Draw(t, "next"))+`}`)
		}
	})
}

// Damage to the history shows in the ids.
func TestDamageShows(t *testing.T) {
	enc, err := tokenize.Load(tokenize.O200K)
	if err != nil {
		t.Fatal(err)
	}
	v := newVocab(enc)
	render := func(message string) []int32 {
		return v.message(Message{raw: gjson.Parse(message)})
	}
	whole := `{"role":"assistant","content":"Hi","reasoning":"hm","tool_calls":[{"function":{"name":"bash","arguments":"{\"a\":1,\"b\":\"é\"}"}}]}`
	for name, other := range map[string]string{
		"text":           strings.Replace(whole, `"Hi"`, `"Hi "`, 1),
		"no reasoning":   strings.Replace(whole, `"reasoning":"hm",`, "", 1),
		"reasoning":      strings.Replace(whole, `"hm"`, `"hm."`, 1),
		"argument":       strings.Replace(whole, `:1`, `:2`, 1),
		"argument lost":  strings.Replace(whole, `\"a\":1,`, ``, 1),
		"tool":           strings.Replace(whole, `"bash"`, `"sh"`, 1),
		"no call":        whole[:strings.Index(whole, `,"tool_calls"`)] + "}",
		"thought inline": `{"role":"assistant","content":"<think>hm</think>Hi"}`,
		"bad arguments":  strings.Replace(whole, `1,`, `,`, 1),
		"role":           strings.Replace(whole, `"assistant"`, `"user"`, 1),
	} {
		if slices.Equal(render(whole), render(other)) {
			t.Errorf("%s: rendered alike", name)
		}
	}
	for name, other := range map[string]string{
		"key order": strings.Replace(whole, `{\"a\":1,\"b\":\"é\"}`, `{ \"b\": \"\\u00e9\", \"a\": 1.0 }`, 1),
		"field":     strings.Replace(whole, `"reasoning"`, `"reasoning_content"`, 1),
		"parts":     strings.Replace(whole, `"Hi"`, `[{"type":"text","text":"Hi"}]`, 1),
		"unknown":   strings.Replace(whole, `{"role"`, `{"weird":5,"role"`, 1),
	} {
		if !slices.Equal(render(whole), render(other)) {
			t.Errorf("%s: rendered differently", name)
		}
	}
}

func TestCanonicalArguments(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`:                                `{}`,
		`{"command":"ls"}`:                  `{"command": "ls"}`,
		`{"b":[1,2 , {"y":null}],"a":1.50}`: `{"a": 1.5, "b": [1, 2, {"y": null}]}`,
		`{"a":1.0,"b":-0,"c":1e2}`:          `{"a": 1, "b": 0, "c": 100}`,
		`{"n":9007199254740993}`:            `{"n": 9007199254740993}`,
		`{"s":"\u00e9\u0007\/\""}`:          `{"s": "é\u0007/\""}`,
		`{"a":1,"a":2}`:                     `{"a": 2}`,
		`{"a":`:                             `{}`,
		`[1]`:                               `{}`,
		``:                                  `{}`,
	} {
		if got := canonicalArguments(raw); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}

func TestCacheForgets(t *testing.T) {
	c := idCache{limit: 2000}
	computed := 0
	for i := range 1000 {
		c.get(fmt.Sprint(i), func() []int32 { computed++; return []int32{int32(i)} })
		if got := c.get("always", func() []int32 { computed++; return []int32{7} }); got[0] != 7 {
			t.Fatal("another key's ids")
		}
	}
	if computed > 1001 || len(c.young)+len(c.old) > 200 {
		t.Fatalf("computed %d, holds %d", computed, len(c.young)+len(c.old))
	}
}
