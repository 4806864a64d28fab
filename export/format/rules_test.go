package format

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// tangledTokens are those that the tangled session trains: not the retry's two, the aborted turn's two, the title's one.
const tangledTokens = 2 + 3 + 1 + 2 + 1 + 2

// TestTangled exports a session with a fork, a retry, two roots, a title call and an aborted turn in every form.
func TestTangled(t *testing.T) {
	doc := tangled("s", "g", ptr(1.0)).build(record.SharedOnce)
	const want = tangledTokens
	if doc.Stats.DistinctTrainableTokens != want {
		t.Fatalf("the session has %d trainable tokens, want %d", doc.Stats.DistinctTrainableTokens, want)
	}
	for _, name := range tokenForms() {
		out, s := mustFiles(t, list{doc}, name, Options{})
		if n := trainedTokens(t, name, out); n != want || s.TrainedTokens != want || s.Sessions != 1 {
			t.Errorf("%s: %d trained tokens in the file, %d in %d sessions in the summary, want %d", name, n, s.TrainedTokens, s.Sessions, want)
		}
		if strings.Contains(all(out), "12,13") {
			t.Errorf("%s: the discarded retry is in the file", name)
		}
	}
}

// TestSharedInFile masks here what a document with shared=every trains more than once, and trains it everywhere when
// asked to.
func TestSharedInFile(t *testing.T) {
	capture := tangled("s", "g", ptr(1.0))
	every, once := capture.build(record.SharedEvery), capture.build(record.SharedOnce)
	for _, name := range Names() {
		a, _ := mustFiles(t, list{every}, name, Options{})
		b, _ := mustFiles(t, list{once}, name, Options{})
		if diff := cmp.Diff(all(b), all(a)); diff != "" {
			t.Errorf("%s: the documents differ once exported (-once +every):\n%s", name, diff)
		}
	}
	perTurn := []string{"openenv", "verifiers"} // have each turn once, whatever is asked
	for _, name := range tokenForms() {
		out, s := mustFiles(t, list{every}, name, Options{Shared: record.SharedEvery})
		want := every.Stats.TrainableTokens
		if slices.Contains(perTurn, name) {
			want = every.Stats.DistinctTrainableTokens
		}
		if n := trainedTokens(t, name, out); n != want || s.TrainedTokens != want {
			t.Errorf("%s: every: %d trained tokens, the summary says %d, want %d", name, n, s.TrainedTokens, want)
		}
	}
	if _, _, err := files(list{once}, "verl", Options{Shared: record.SharedEvery}); !errors.Is(err, ErrSharedOnce) {
		t.Errorf("a document with shared=once as every: %v", err)
	}
	if every.Sequences[1].NTrainable == once.Sequences[1].NTrainable {
		t.Error("the session has no shared turn, the test shows nothing")
	}
}

// TestDocumentIsLeftAlone: two forms may be written from one document.
func TestDocumentIsLeftAlone(t *testing.T) {
	doc := tangled("s", "g", ptr(1.0)).build(record.SharedEvery)
	before := asJSON(t, doc)
	for _, name := range Names() {
		mustFiles(t, list{doc}, name, Options{})
		if asJSON(t, doc) != before {
			t.Fatalf("%s changed the document", name)
		}
	}
}

func asJSON(t *testing.T, r *export.Rollout) string {
	t.Helper()
	b, err := r.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAdvantagesPerSession: rewards 1, 1, 0, where the first session has three rows. Over rows they would be something
// else.
func TestAdvantagesPerSession(t *testing.T) {
	shut := newCapture("shut", "g", ptr(9.0)) // is no part of the export, and so of no baseline
	shut.sess.CaptureFailed = "the disk was full"
	shut.turn([]json.RawMessage{text("user", "q")}, []int32{1, 2}, 3)
	docs := list{
		shut.build(""), tangled("a", "g", ptr(1.0)).build(record.SharedOnce),
		simple("b", "g", ptr(1.0)), simple("c", "g", ptr(0.0)), simple("d", "", ptr(5.0)),
	}
	type line struct {
		Rollout_id string
		Advantage  float64
	}
	out, s := mustFiles(t, docs, "trl-async", Options{Advantage: AdvantageGroup})
	got := map[string][]float64{}
	for _, l := range values[line](t, out) {
		got[l.Rollout_id] = append(got[l.Rollout_id], math.Round(l.Advantage*1000)/1000)
	}
	want := map[string][]float64{"a": {0.707, 0.707, 0.707}, "b": {0.707}, "c": {-1.414}, "d": {0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !strings.Contains(s.String(), "advantage 0") {
		t.Errorf("nothing said about the session alone in its group:\n%s", s)
	}
	// Tinker's recipes divide by nothing, and have no mask but the advantage.
	out, s = mustFiles(t, docs, "tinker", Options{Advantage: AdvantageGroup})
	if n := trainedTokens(t, "tinker", out); n != s.TrainedTokens || n != tangledTokens+2+2 {
		t.Errorf("tinker: %d tokens with an advantage, the summary says %d, want 15", n, s.TrainedTokens)
	}
	if !strings.Contains(all(out), "0.33333333333333337") || !strings.Contains(all(out), "-0.6666666666666666") {
		t.Errorf("tinker: other advantages than the reward less the mean:\n%s", all(out))
	}
	// With none, the reward stands in its place.
	out, _ = mustFiles(t, docs, "trl-async", Options{})
	if first := values[line](t, out)[0]; first.Advantage != 1 {
		t.Errorf("advantage none: %v, want the reward 1", first.Advantage)
	}
	// The baseline is that of the whole group, also when little of it is exported.
	out, _ = mustFiles(t, docs, "trl-async", Options{Advantage: AdvantageGroup, MinReward: ptr(0.5)})
	if first := values[line](t, out)[0]; math.Round(first.Advantage*1000) != 707 {
		t.Errorf("with a smallest reward: %v", first.Advantage)
	}
}

func simple(id, group string, reward *float64) *export.Rollout {
	c := newCapture(id, group, reward)
	c.turn([]json.RawMessage{text("user", "q")}, []int32{1, 2, 3}, 10, 11)
	return c.build(record.SharedOnce)
}

// TestGroupOfEight has eight sessions of one group, given among those of another.
func TestGroupOfEight(t *testing.T) {
	var docs list
	want := 0
	for i := range 8 {
		reward := float64(i % 2)
		docs = append(docs, tangled(fmt.Sprint("s", i), "g", &reward).build(record.SharedEvery), simple(fmt.Sprint("x", i), "other", &reward))
		want += tangledTokens + 2
	}
	for _, name := range tokenForms() {
		out, s := mustFiles(t, docs, name, Options{Advantage: AdvantageGroup})
		if n := trainedTokens(t, name, out); n != want || s.TrainedTokens != want || s.Sessions != 16 {
			t.Errorf("%s: %d trained tokens in the file, the summary says %d in %d sessions, want %d in 16", name, n, s.TrainedTokens, s.Sessions, want)
		}
		switch name {
		case "atropos":
			groups := values[struct {
				Scores     []float64
				Advantages [][]float64
			}](t, out)
			if len(groups) != 2 || len(groups[0].Scores) != 24 || len(groups[1].Scores) != 8 || len(groups[0].Advantages) != 24 {
				t.Errorf("atropos: %d groups: %+v", len(groups), groups)
			}
		case "skyrl":
			batch := values[struct {
				Is_last_step []bool
				Rewards      [][]float64
			}](t, out)[0]
			last, reward := 0, 0.0
			for i, is := range batch.Is_last_step {
				for _, r := range batch.Rewards[i] {
					reward += r
				}
				if is {
					last++
				}
			}
			if last != 16 || reward != 8 {
				t.Errorf("skyrl: %d trajectories with a sum of rewards of %v, want 16 and 8", last, reward)
			}
		}
	}
}

// TestAtroposOutOfOrder: without Export nobody brings a group together.
func TestAtroposOutOfOrder(t *testing.T) {
	var b bytes.Buffer
	e, err := New("atropos", Output{Stream: &b}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*export.Rollout{simple("a", "g", ptr(1.0)), simple("b", "h", ptr(1.0)), simple("c", "g", ptr(1.0))} {
		err = errors.Join(err, e.Add(r.SessionID, r))
	}
	if err == nil || !strings.Contains(err.Error(), "one after the other") {
		t.Errorf("a group in two parts: %v", err)
	}
}

// TestLeftOut counts what is no part of an export, and says why.
func TestLeftOut(t *testing.T) {
	eval := newCapture("eval", "g", ptr(1.0))
	eval.sess.Spec.Purpose = record.PurposeEval
	eval.turn([]json.RawMessage{text("user", "q")}, []int32{1, 2}, 3)
	failed := newCapture("failed", "g", ptr(1.0))
	failed.sess.CaptureFailed = "the disk was full"
	failed.turn([]json.RawMessage{text("user", "q")}, []int32{1, 2}, 3)
	running := newCapture("running", "g", ptr(1.0))
	running.sess.Status = record.Running
	running.turn([]json.RawMessage{text("user", "q")}, []int32{1, 2}, 3)
	docs := list{
		eval.build(""), failed.build(""), running.build(""),
		simple("unscored", "g", nil), simple("low", "g", ptr(0.25)), simple("good", "g", ptr(1.0)),
		tangled("t", "g", ptr(1.0)).build(record.SharedOnce),
	}
	_, s := mustFiles(t, docs, "verl", Options{MinReward: ptr(0.5)})
	want := []Reason{{"eval rollout", 1}, {"gate shut: capture_failed", 1}, {"still running", 1}, {"not scored", 1}, {"reward below 0.5", 1}}
	if diff := cmp.Diff(want, s.SessionsLeftOut); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]Reason{{"auxiliary", 1}}, s.RowsLeftOut); diff != "" {
		t.Errorf("rows: -want +got:\n%s", diff)
	}
	for _, part := range []string{"verl: sessions 2, rows 4, trained tokens 13", "left out: sessions 1 (eval rollout)", "left out: rows 1 (auxiliary)"} {
		if !strings.Contains(s.String(), part) {
			t.Errorf("the summary does not say %q:\n%s", part, s)
		}
	}
	for _, name := range Names() {
		out, _ := mustFiles(t, docs[:3], name, Options{})
		if got := strings.Contains(all(out), `"eval"`); got != (name == "messages") {
			t.Errorf("%s: the eval rollout is there: %v", name, got)
		}
		if text := all(out); strings.Contains(text, `"failed"`) || strings.Contains(text, `"running"`) {
			t.Errorf("%s: a session whose gate is shut, or that still runs, is there:\n%s", name, text)
		}
	}
	// A form that can do without a reward says that there is none.
	out, _ := mustFiles(t, docs[3:4], "openenv", Options{})
	if !strings.Contains(all(out), `"reward":null`) {
		t.Errorf("openenv: %s", all(out))
	}
	out, _ = mustFiles(t, docs[3:4], "verifiers", Options{})
	if !strings.Contains(all(out), `"rewards":{"reward":null}`) {
		t.Errorf("verifiers: %s", all(out))
	}
}

// TestDamaged: what contradicts itself is refused with its name, and no line of it is written.
func TestDamaged(t *testing.T) {
	good := simple("good", "g", ptr(1.0))
	for name, damage := range map[string]func(r *export.Rollout){
		"a logprob cut":       func(r *export.Rollout) { r.Sequences[0].Logprobs = r.Sequences[0].Logprobs[:3] },
		"a mask flipped":      func(r *export.Rollout) { r.Sequences[0].LossMask[3] = 0 },
		"context trained":     func(r *export.Rollout) { r.Sequences[0].LossMask[5] = 1 },
		"an id out of range":  func(r *export.Rollout) { r.Sequences[0].InputIDs[1] = -1 },
		"a logprob above 0":   func(r *export.Rollout) { r.Sequences[0].Logprobs[3] = 0.5 },
		"a row twice":         func(r *export.Rollout) { r.Sequences[1].RowID = r.Sequences[0].RowID },
		"a turn lost":         func(r *export.Rollout) { r.Turns = r.Turns[1:] },
		"mask and count both": func(r *export.Rollout) { r.Sequences[0].LossMask[3] = 0; r.Sequences[0].NTrainable-- },
	} {
		for _, form := range Names() {
			bad := tangled("bad", "g", ptr(1.0)).build(record.SharedOnce)
			damage(bad)
			out, _, err := files(list{good, bad}, form, Options{})
			var damaged *DamagedError
			if !errors.As(err, &damaged) || damaged.Source != "document 1" || !strings.Contains(err.Error(), "document 1") {
				t.Errorf("%s in %s: %v", name, form, err)
			}
			if strings.Contains(all(out), `"bad`) {
				t.Errorf("%s in %s was exported:\n%s", name, form, all(out))
			}
		}
	}
}

// TestNoSpans takes the documents of producers that list no spans, and still refuses what is wrong in them.
func TestNoSpans(t *testing.T) {
	build := func() *export.Rollout {
		r := tangled("s", "g", ptr(1.0)).build(record.SharedEvery)
		for i := range r.Sequences {
			r.Sequences[i].TurnSpans, r.Sequences[i].SharedSpans = nil, nil
		}
		return r
	}
	for _, name := range tokenForms() {
		if out, s := mustFiles(t, list{build()}, name, Options{}); trainedTokens(t, name, out) != tangledTokens || s.TrainedTokens != tangledTokens {
			t.Errorf("%s: %d trained tokens, want %d", name, s.TrainedTokens, tangledTokens)
		}
	}
	for name, change := range map[string]int{"half of a turn": -1, "context": 1} {
		bad := build()
		at := map[int]int{-1: 3, 1: 5}[change] // the first turn's first token, and the one after its last
		bad.Sequences[0].LossMask[at] += uint8(change)
		bad.Sequences[0].Logprobs[at] = 0
		bad.Sequences[0].NTrainable += change
		bad.Stats.TrainableTokens += change
		if found := export.Check(bad); len(found) > 0 {
			t.Errorf("%s: export.Check sees it: %v", name, found)
		}
		if _, _, err := files(list{bad}, "verl", Options{}); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%s trained: %v", name, err)
		}
	}
	bad := build()
	row := &bad.Sequences[0]
	for i := range bad.Turns {
		turn := &bad.Turns[i]
		if turn.Outcome != record.Aborted {
			continue
		}
		for k, lp := range turn.SampledLogprobs {
			row.LossMask[turn.NPrompt+k], row.Logprobs[turn.NPrompt+k] = 1, lp
		}
		row.NTrainable += turn.NSampled
		bad.Stats.TrainableTokens += turn.NSampled
		bad.Stats.DistinctTrainableTokens += turn.NSampled
	}
	if _, _, err := files(list{bad}, "verl", Options{}); err == nil || !strings.Contains(err.Error(), "which is context") {
		t.Errorf("an aborted turn trained: %v", err)
	}
	bad = build()
	bad.Turns[0].NPrompt = 1000
	if _, _, err := files(list{bad}, "verl", Options{}); err == nil {
		t.Error("a turn beyond its row was exported")
	}
}

func TestRepeated(t *testing.T) {
	a, b := simple("a", "g", ptr(1.0)), simple("b", "g", ptr(1.0))
	if _, _, err := files(list{a, b, a}, "verl", Options{}); err == nil || !strings.Contains(err.Error(), "document 2: the session a was exported already") {
		t.Errorf("a session twice: %v", err)
	}
	b.Sequences[0].RowID = a.Sequences[0].RowID
	if _, _, err := files(list{a, b}, "verl", Options{}); err == nil || !strings.Contains(err.Error(), "document 1: the row id") {
		t.Errorf("a row id twice: %v", err)
	}
}

func TestWithoutMessages(t *testing.T) {
	c := tangled("s", "g", ptr(1.0))
	doc := export.Build(c.sess, c.calls, export.Options{Shared: record.SharedOnce})
	var able []string
	for _, name := range Names() {
		_, _, err := files(list{doc}, name, Options{})
		switch {
		case err == nil:
			able = append(able, name)
		case !strings.Contains(err.Error(), "include_messages"):
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff([]string{"verl", "tinker", "tinker-sft", "trl-sft", "skyrl", "areal"}, able); diff != "" {
		t.Errorf("forms without messages (-want +got):\n%s", diff)
	}
}

func TestWrongOptions(t *testing.T) {
	var b bytes.Buffer
	create := folder{}.create
	for _, c := range []struct {
		name string
		out  Output
		o    Options
		says string
	}{
		{"nothing", Output{Stream: &b}, Options{}, "there is: openenv, verifiers"},
		{"nemo-gym", Output{Stream: &b}, Options{}, "directory"},
		{"verl", Output{Create: create}, Options{}, "stream"},
		{"verl", Output{Stream: &b}, Options{Parquet: true}, "Parquet"},
		{"verl", Output{Stream: &b}, Options{Advantage: AdvantageGroup}, "Groups.Add"},
	} {
		if _, err := New(c.name, c.out, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want something about %q", c.name, err, c.says)
		}
	}
}

func TestScoredMeanwhile(t *testing.T) {
	docs := list{simple("a", "g", ptr(1.0)), simple("b", "g", ptr(0.0))}
	_, _, err := files(reScored{docs, new(int)}, "trl-async", Options{Advantage: AdvantageGroup})
	if err == nil || !strings.Contains(err.Error(), "export again") {
		t.Errorf("a reward that changed between the passes: %v", err)
	}
}

// reScored gives a session another reward each time it is asked for.
type reScored struct {
	list
	asked *int
}

func (s reScored) Rollout(_ context.Context, i int) (*export.Rollout, error) {
	r := *s.list[i]
	*s.asked++
	r.Reward = ptr(float64(*s.asked))
	return &r, nil
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var b bytes.Buffer
	_, err := Export(ctx, list{simple("a", "g", ptr(1.0))}, "verl", Output{Stream: &b}, Options{}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled export: %v", err)
	}
}

func TestProgress(t *testing.T) {
	docs := list{simple("a", "g", ptr(1.0)), simple("b", "g", ptr(0.0))}
	for _, c := range []struct {
		o    Options
		want []string
	}{
		{Options{}, []string{"1/2", "2/2"}},
		{Options{Advantage: AdvantageGroup}, []string{"1/4", "2/4", "3/4", "4/4"}},
	} {
		var b bytes.Buffer
		var got []string
		_, err := Export(context.Background(), docs, "verl", Output{Stream: &b}, c.o, func(done, total int) { got = append(got, fmt.Sprintf("%d/%d", done, total)) })
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	}
}
