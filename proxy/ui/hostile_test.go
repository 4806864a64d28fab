package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/validate"
)

// evil is what a prompt, a tool or a harness may hold. evilID survives as a session's id in a document, for nobody checks that.
const evil = "<script>alert(1)</script>\"'`><img src=x onerror=alert(2)>\x1b[31m\x00\u202e\u2066javascript:alert(3)\r</style></title>{{.}}"

// hostile is a document whose every text is evil.
func hostile(t *testing.T) *export.Rollout {
	t.Helper()
	doc := read(t, "../../export/testdata/rollout.json")
	quoted := func(s string) json.RawMessage {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := evil
	doc.SessionID, doc.Status = evil, record.Status(evil)
	doc.Outcome = &record.Verdict{Status: "failed", Error: &text}
	doc.Env, doc.Group = &export.Env{ID: evil, Name: evil}, &export.Group{ID: evil}
	doc.Run = json.RawMessage(`{"kind":` + string(quoted(evil)) + `,"id":` + string(quoted(evil)) + `}`)
	doc.Metadata = map[string]json.RawMessage{evil: quoted(evil), "lone": json.RawMessage(`"\ud800 and \udc00"`)}
	doc.Rewards = map[string]float64{evil: 1}
	doc.Engine.URL, doc.Engine.Model, doc.Engine.Profile.Provider, doc.ProxyVersion = evil, evil, evil, evil
	doc.Validation = append(doc.Validation, validate.Finding{Level: evil, Code: evil, Detail: evil})
	message := json.RawMessage(fmt.Sprintf(`{"role":%[1]s,"name":%[1]s,"content":[{"type":"text","text":%[1]s},{"type":%[1]s,"x":%[1]s},{"type":"image_url","image_url":{"url":%[1]s}}],
		"reasoning_content":%[1]s,"refusal":%[1]s,"tool_call_id":%[1]s,"tool_calls":[{"id":%[1]s,"function":{"name":%[1]s,"arguments":%[1]s}}]}`, quoted(evil)))
	for i := range doc.Turns {
		turn := &doc.Turns[i]
		turn.FinishReason, turn.FinishReasonRaw, turn.DiscardReason, turn.Model = evil, evil+"2", evil, evil
		turn.Harness = export.Harness{Name: evil, Version: evil, AgentID: evil, ParentAgentID: evil}
		turn.HarnessSessionID, turn.Dialect, turn.PromptSource, turn.Outcome = evil, evil, evil, evil
		turn.Edits = []export.Edit{{Param: evil, From: quoted(evil), To: quoted(evil), Why: evil}}
		turn.Usage, turn.SamplingParams = quoted(evil), json.RawMessage(`{`+string(quoted(evil))+`:`+string(quoted(evil))+`}`)
		turn.Validation = []validate.Finding{{Level: validate.Warn, Code: evil, Detail: evil}}
		if turn.Break != nil {
			turn.Break.Cause, turn.Break.Detail = evil, evil
		}
		turn.RequestMessages = []json.RawMessage{message, json.RawMessage(`"no message"`), json.RawMessage(`{"role":"user","content":"\ud83d\ud83d and \udc00"}`)}
		turn.RequestTools = []json.RawMessage{json.RawMessage(`{"function":{"name":` + string(quoted(evil)) + `,"description":` + string(quoted(evil)) + `,"parameters":` + string(quoted(evil)) + `}}`)}
		turn.ResponseMessage = message
	}
	for i := range doc.Sequences {
		doc.Sequences[i].RowID = evil
		doc.Sequences[i].Validation = []validate.Finding{{Level: validate.Warn, Code: evil, Detail: evil}}
	}
	for i := range doc.FailedCalls {
		doc.FailedCalls[i].Detail, doc.FailedCalls[i].Outcome = evil, evil
	}
	return doc
}

// checkHarmless looks at the bytes of a page as a browser would.
func checkHarmless(t *testing.T, what, got string) {
	t.Helper()
	for _, bad := range []string{"<script>", "<img", "alert(2)>", "</style></title>"} {
		if strings.Contains(strings.ReplaceAll(got, "</style>\n", ""), bad) {
			t.Errorf("%s holds %q as it came", what, bad)
		}
	}
	for _, m := range regexp.MustCompile(`(?i)(?:href|src|action|hx-get)="\s*javascript:|\son[a-z]+=`).FindAllString(html.UnescapeString(tags(got)), 3) {
		t.Errorf("%s runs something: %q", what, m)
	}
	// A hidden field of a form gives back what it was given, and nobody sees it.
	got = regexp.MustCompile(`<input type="hidden" [^>]*>`).ReplaceAllString(got, "")
	for i, r := range got {
		if r != '\n' && r != '\t' && r != '\r' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Errorf("%s holds %U: …%q…", what, r, got[max(i-80, 0):min(i+20, len(got))])
			return
		}
	}
}

// tags are the tags of a page without what stands between them and without the values of their attributes.
func tags(page string) string {
	var names strings.Builder
	for _, tag := range regexp.MustCompile(`<[a-z][^<]*?>`).FindAllString(page, -1) {
		names.WriteString(regexp.MustCompile(`="(?:[^"j]|j[^a])[^"]*"`).ReplaceAllString(tag, `=""`))
	}
	return names.String()
}

func TestHostileTextStaysText(t *testing.T) {
	doc := hostile(t)
	docs := NewDocuments([]*export.Rollout{doc, read(t, "../../export/format/testdata/rollouts/group-0.json")})
	u := newUI(t, Options{Source: docs, Loopback: true, Engine: func(*export.Rollout) Detokenize {
		return func(context.Context, []int32) (string, error) { return evil, nil }
	}})
	key := docs.byKey(doc)
	paths := []string{"/ui/", "/ui/?group=" + url.QueryEscape(evil), "/ui/group?id=" + url.QueryEscape(evil), "/ui/sessions/" + key, "/ui/sessions/" + key + "/turns?from=0"}
	for i := range doc.Turns {
		paths = append(paths, fmt.Sprintf("/ui/sessions/%s/turns/%d", key, i), fmt.Sprintf("/ui/sessions/%s/turns/%d/messages?from=0&to=2", key, i))
		if doc.Turns[i].Break != nil {
			paths = append(paths, fmt.Sprintf("/ui/sessions/%s/turns/%d/break", key, i))
		}
	}
	for k := range doc.Sequences {
		paths = append(paths, fmt.Sprintf("/ui/sessions/%s/rows/%d", key, k), fmt.Sprintf("/ui/sessions/%s/rows/%d/tokens?from=0", key, k))
	}
	for _, path := range paths {
		got := page(t, u, path)
		checkHarmless(t, path, got)
		if strings.Contains(path, "/turns/") {
			wantAll(t, path, got, "&lt;script&gt;alert(1)", `\u001b`, `\u0000`, `\u202e`)
		}
	}
	turn := page(t, u, "/ui/sessions/"+key+"/turns/0")
	wantAll(t, "lone surrogates", turn, `\ud83d\ud83d and \udc00`)
	var one bytes.Buffer
	if err := WritePage(t.Context(), &one, doc, nil); err != nil {
		t.Fatal(err)
	}
	checkHarmless(t, "the one page", one.String())
	if resp := get(t, u, "/ui/"+url.PathEscape("<script>")); resp.StatusCode != http.StatusNotFound {
		t.Error(resp.Status)
	}
}

// byKey is the address of a document.
func (d *Documents) byKey(doc *export.Rollout) string {
	for key, have := range d.byID {
		if have == doc {
			return key
		}
	}
	return ""
}

func TestLongLinesAreCut(t *testing.T) {
	doc := read(t, "../../export/format/testdata/rollouts/group-0.json")
	line := strings.Repeat("é<", 1<<19)
	text, err := json.Marshal(map[string]string{"role": "user", "content": line})
	if err != nil {
		t.Fatal(err)
	}
	doc.Turns[0].RequestMessages = []json.RawMessage{text}
	u := newUI(t, Options{Source: NewDocuments([]*export.Rollout{doc}), Loopback: true})
	path := key(doc.SessionID) + "/turns/0"
	got := page(t, u, path)
	if len(got) > 200_000 {
		t.Errorf("the page of a line of %d bytes has %d", len(line), len(got))
	}
	var all strings.Builder
	_, got, _ = strings.Cut(got, `<div class="prose" dir="auto">`)
	beginning, rest, ok := strings.Cut(got, `<span class="more"><a class="button small" href="`)
	if !ok {
		t.Fatal("nothing leads to the rest")
	}
	all.WriteString(beginning)
	address, _, _ := strings.Cut(rest, `"`)
	for address != "" {
		text, rest, _ := strings.Cut(page(t, u, html.UnescapeString(address), "HX-Request", "true"), `<span class="more"><a class="button small" href="`)
		all.WriteString(strings.TrimSpace(text))
		address, _, _ = strings.Cut(rest, `"`)
	}
	if got := html.UnescapeString(all.String()); got != line {
		t.Errorf("the pieces are not the whole: %d bytes of %d", len(got), len(line))
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\ttext":      "plain\n\ttext",
		"\x1b[0m":            `\u001b[0m`,
		"a\u202eb":           `a\u202eb`,
		"👨\u200d👩":           "👨\u200d👩",
		"a\u200db":           `a\u200db`,
		"x\r\ny\rz":          "x\ny\\u000dz",
		"\xff\xfe":           `\xff\xfe`,
		"\u2028":             `\u2028`,
		"\U000e0041":         `\U000e0041`,
		"日本語":                "日本語",
		"می\u200cخواهم":      "می\u200cخواهم",
		"soft\u00adhyphen":   `soft\u00adhyphen`,
		"\ufeffbyte order":   `\ufeffbyte order`,
		"a\u0000b\u0007\x7f": `a\u0000b\u0007\u007f`,
	} {
		if got := plain(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func TestSurrogates(t *testing.T) {
	for in, want := range map[string]string{
		`"\ud83d\ude00"`: "😀", `"\ud83d"`: `\ud83d`, `"\ude00\ud83d"`: `\ude00\ud83d`, `"\\ud83d"`: `\ud83d`, `"a\u0041\ud83dx"`: `aA\ud83dx`, `"\uD83D\uDE00"`: "😀",
	} {
		var got string
		if err := json.Unmarshal(keepSurrogates([]byte(in)), &got); err != nil || got != want {
			t.Errorf("%s becomes %q, want %q (%v)", in, got, want, err)
		}
	}
}

func TestCommandsAreQuoted(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"s-12", "s-12"}, {"it's; rm -rf /", `'it'\''s; rm -rf /'`}, {"$(x)", "'$(x)'"}, {"`x`", "'`x`'"}, {`a"b`, `'a"b'`}, {"$HOME", "'$HOME'"}, {"", "''"},
	} {
		if got := command("show", tc.in); got != "show "+tc.want {
			t.Errorf("%q is written %s", tc.in, got)
		}
	}
	if got := command("show", "a\x1bb"); got != "" {
		t.Errorf("a command with a control character: %q", got)
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 300 * time.Microsecond: "300 µs", 12 * time.Millisecond: "12 ms", 1500 * time.Millisecond: "1.5 s", 90 * time.Second: "1 min 30 s", 3 * time.Hour: "3 h 0 min",
	} {
		if got := duration(d); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}
