package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"captureproxy/export"
	"captureproxy/proxy/control"
)

func bookOf(t *testing.T, doc *export.Rollout) *book {
	t.Helper()
	docs := NewDocuments([]*export.Rollout{doc})
	status, err := docs.Status(t.Context(), docs.keys[0])
	if err != nil {
		t.Fatal(err)
	}
	return newBook(docs.keys[0], doc, status)
}

// TestStripsSayWhatTrains compares what is drawn with what the document counts.
func TestStripsSayWhatTrains(t *testing.T) {
	for _, doc := range documents(t) {
		for k := range doc.Sequences {
			row := &doc.Sequences[k]
			end, trains := 0, 0
			kinds := kindsOf(row)
			for _, r := range runsOf(row) {
				if r.start != end || r.end <= r.start {
					t.Errorf("%s row %d: a stretch from %d to %d after %d", doc.SessionID, k, r.start, r.end, end)
				}
				end = r.end
			}
			for i, kind := range kinds {
				if kind == kindTrained || kind == kindShared && row.Trainable && row.LossMask[i] == 1 {
					trains++
				}
				if kind == kindTrained && row.LossMask[i] != 1 {
					t.Errorf("%s row %d: token %d is shown as trained under mask 0", doc.SessionID, k, i)
				}
			}
			want := 0
			if row.Trainable {
				want = row.NTrainable
			}
			if end != len(row.InputIDs) || trains != want {
				t.Errorf("%s row %d: %d of %d tokens drawn, %d of %d trained", doc.SessionID, k, end, len(row.InputIDs), trains, want)
			}
		}
	}
}

func TestGraphIsToScale(t *testing.T) {
	number := func(p string) float64 {
		v, err := strconv.ParseFloat(strings.TrimSuffix(p, "%"), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, doc := range documents(t) {
		b := bookOf(t, doc)
		d := draw(b, links{})
		if len(d.Marks) != len(doc.Turns)+len(doc.FailedCalls) {
			t.Fatalf("%s: %d marks", doc.SessionID, len(d.Marks))
		}
		for i := range doc.Turns {
			m := d.Marks[i]
			if x := number(m.X); x < 0 || x > 100 || m.Y <= 0 || m.Y >= d.Height || m.Shape != string(b.role(i)) {
				t.Errorf("%s: turn %d is drawn as %+v in a picture %d high", doc.SessionID, i, m, d.Height)
			}
			for j := range doc.Turns[:i] {
				earlier := doc.Turns[j].Timing.Received.Before(doc.Turns[i].Timing.Received.Time)
				if earlier && number(d.Marks[j].X) > number(m.X) {
					t.Errorf("%s: turn %d stands before turn %d, which came earlier", doc.SessionID, i, j)
				}
			}
		}
		next := map[string]bool{}
		for _, e := range d.Edges {
			level := fmt.Sprint(e.X1, e.Y1, e.Y2)
			if e.Y1 == e.Y2 && (e.Broken || next[level]) {
				t.Errorf("%s: a break or a fork is drawn as a step: %+v", doc.SessionID, e)
			}
			next[level] = next[level] || e.Y1 == e.Y2
		}
	}
}

// TestLanesHoldOneThingAtATime draws many conversations that overlap.
func TestLanesHoldOneThingAtATime(t *testing.T) {
	doc := &export.Rollout{SessionID: "s"}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 60 {
		turn := export.Turn{NodeID: fmt.Sprint("n", i), Index: i, Call: i + 1}
		if i >= 3 {
			turn.ParentID = fmt.Sprint("n", i-3) // three at once
		}
		turn.Timing.Received = export.Time{Time: at.Add(time.Duration(i) * time.Second)}
		turn.Timing.LastToken = export.Time{Time: at.Add(time.Duration(i+2) * time.Second)}
		doc.Turns = append(doc.Turns, turn)
	}
	d := draw(bookOf(t, doc), links{})
	lanes := map[int]bool{}
	for _, m := range d.Marks {
		lanes[m.Y] = true
	}
	if len(lanes) != 3 {
		t.Errorf("three conversations at once are drawn on %d lines", len(lanes))
	}
	for _, e := range d.Edges {
		if e.Y1 != e.Y2 {
			t.Errorf("a conversation changes its line: %+v", e)
		}
	}
}

func TestDecoder(t *testing.T) {
	var mu sync.Mutex
	asked, broken := map[int32]int{}, false
	d := newDecoder(func(*export.Rollout) Detokenize {
		return func(_ context.Context, ids []int32) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			asked[ids[0]]++
			if broken {
				return "", errors.New("no tokenizer")
			}
			return fmt.Sprintf("<%d>", ids[0]), nil
		}
	})
	now := time.Now()
	d.now = func() time.Time { return now }
	doc := &export.Rollout{SessionID: "s"}
	for range 2 {
		got, by := d.pieces(t.Context(), doc, []int32{5, 6, 5})
		if strings.Join(got, "") != "<5><6><5>" || by == "" {
			t.Errorf("decoded %q by %q", got, by)
		}
	}
	if asked[5] != 1 || asked[6] != 1 {
		t.Errorf("the engine was asked %v", asked)
	}
	broken = true
	for range 3 {
		if got, by := d.pieces(t.Context(), doc, []int32{7}); got != nil || by != "" {
			t.Errorf("an engine that cannot decode gave %q by %q", got, by)
		}
	}
	if asked[7] != 1 {
		t.Errorf("an engine that cannot decode was asked %d times in a row", asked[7])
	}
	broken, now = false, now.Add(askAgainIn)
	if got, _ := d.pieces(t.Context(), doc, []int32{7}); len(got) != 1 || got[0] != "<7>" {
		t.Errorf("later it decodes %q", got)
	}
	doc.Metadata = map[string]json.RawMessage{"tokenizer": json.RawMessage(`"o200k_base"`)}
	if got, by := d.pieces(t.Context(), doc, []int32{10643, 16, 200100}); by != "o200k_base" || got[0] != "Step" || got[2] != "" {
		t.Errorf("tiktoken says %q by %q", got, by)
	}
}

func TestDocumentsAreListed(t *testing.T) {
	docs := documents(t)
	source := NewDocuments(append(docs, docs[0])) // one twice
	seen := map[string]bool{}
	for o := (control.ListOptions{Limit: 5}); ; {
		page, err := source.List(t.Context(), o)
		if err != nil || len(page.Sessions) > 5 {
			t.Fatal(len(page.Sessions), err)
		}
		for _, s := range page.Sessions {
			if seen[s.SessionID] {
				t.Errorf("%s comes twice", s.SessionID)
			}
			seen[s.SessionID] = true
		}
		if o.After = page.Next; page.Next == "" {
			break
		}
	}
	if len(seen) != len(docs)+1 {
		t.Errorf("%d of %d documents are listed", len(seen), len(docs)+1)
	}
	for _, o := range []control.ListOptions{{Status: "running"}, {Group: "x"}, {Env: "x"}, {Run: "x"}, {Since: time.Now().Add(1000 * time.Hour)}} {
		if page, err := source.List(t.Context(), o); err != nil || len(page.Sessions) != 0 {
			t.Errorf("%+v finds %d (%v)", o, len(page.Sessions), err)
		}
	}
}
