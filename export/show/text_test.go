package show

import (
	"errors"
	"strings"
	"testing"

	"captureproxy/export"
)

func TestText(t *testing.T) {
	r := &export.Rollout{Sequences: []export.Row{
		{Role: export.Agent, PromptLen: 2, InputIDs: []int32{1, 2, 3, 4, 5}, LossMask: export.Mask{0, 0, 1, 0, 1}},
		{Role: export.Auxiliary},
	}}
	names := map[int32]string{1: "sys\x1b[31m", 2: "user\n", 3: "reply", 4: "tool", 5: "end"}
	var b strings.Builder
	err := Text(&b, r, func(ids []int32) (string, error) {
		text := ""
		for _, id := range ids {
			text += names[id]
		}
		return text, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "row 1 of 2 · agent · 5 tokens\n── prompt 0–1 ──\nsys\\u001b[31muser\n\n── trained 2–2 ──\nreply\n── context 3–3 ──\ntool\n── trained 4–4 ──\nend\n" +
		"row 2 of 2 · auxiliary · 0 tokens\n  no token ids: the row has messages only\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := Text(&b, r, func([]int32) (string, error) { return "", errors.New("nobody can") }); err != nil || !strings.Contains(b.String(), "[1 2]") {
		t.Errorf("%v: %s", err, b.String())
	}
}
