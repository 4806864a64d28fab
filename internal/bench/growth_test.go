package bench

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

// A figure that grows as the bytes do has the power 1, one that stands still 0, a quadratic one 2.
func TestStepsArePowersOfTheBytes(t *testing.T) {
	s := &Series{}
	for _, n := range []int{10, 100, 1000} {
		s.point(n, float64(n)*1e6)
		s.note("linear", "", "", float64(n)*3)
		s.note("constant", "", "", 7)
		s.note("square", "", "", float64(n)*float64(n))
		s.note("nothing", "", "", -1)
		s.noteOf("per call", "", "", float64(n)*float64(n), float64(n)*float64(n)*10)
	}
	s.relate()
	want := map[string]float64{"linear": 1, "constant": 0, "square": 2, "nothing": 0, "per call": 1}
	for _, f := range s.Figures {
		if len(f.Values) != 3 || len(f.PerMiB) != 3 || len(f.Steps) != 2 || f.Steps[0] != want[f.Name] || f.Steps[1] != want[f.Name] {
			t.Errorf("%+v", f)
		}
	}
	if f := s.Figures[0]; math.Abs(f.PerMiB[0]-f.PerMiB[2]) > 1e-9 || f.PerMiB[0] != significant(30/(1e7/(1<<20))) {
		t.Errorf("per MiB: %v", f.PerMiB)
	}
	if got := s.Figures[2].lastStep(); !strings.Contains(got, "2.00 faster") {
		t.Error(got)
	}
	if got := s.Figures[0].lastStep(); got != "1.00" {
		t.Error(got)
	}
}

// The guide touches the curve from below, and is nowhere above it.
func TestTheGuideTouchesTheCurveFromBelow(t *testing.T) {
	values, bytes := []float64{100, 120, 0, 400, 9000}, []float64{1, 10, 50, 100, 1000}
	guide := below(values, bytes)
	touches := 0
	for i, v := range values {
		switch {
		case v == 0:
		case guide[i] > v+1e-9:
			t.Errorf("at %d it is above the curve: %v of %v", i, guide[i], v)
		case math.Abs(guide[i]-v) < 1e-9:
			touches++
		}
	}
	if touches != 1 {
		t.Errorf("it touches the curve %d times: %v", touches, guide)
	}
}

func TestPicturesAreWellFormed(t *testing.T) {
	s := &Series{Name: "growth-turns", Title: "Turns & <more>", Axis: "turns"}
	for _, n := range []int{10, 200, 2000} {
		s.point(n, float64(n)*float64(n))
		for i, name := range growthNames(s.Name) {
			v := float64(n) * float64(i) // the first is never above zero, and has no panel
			if n == 10 && i == 1 {
				v = 0
			}
			s.note(name, name+" & <so on>", "µs", v)
		}
	}
	s.relate()
	picture := string(s.picture())
	d := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, picture)
		}
	}
	if got, want := strings.Count(picture, `<polyline class="curve"`), len(growthNames(s.Name))-1; got != want {
		t.Errorf("%d curves, want %d", got, want)
	}
	if strings.Contains(picture, "NaN") || strings.Contains(picture, "Inf") {
		t.Error("a place that is no number: " + picture)
	}
	if strings.Count(picture, `<polyline class="size"`) == 0 {
		t.Error("bytes grow faster than turns, and no line tells them apart")
	}
}

// A limit that is too low is told, whatever the machine's.
func TestStreamsThatDoNotFitAreTold(t *testing.T) {
	c := &conductor{report: newReport()}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &Series{}
	if _, err := c.growStreamsInto(ctx, s, GrowthSize{Streams: []int{10_000}}, 20_000); err == nil {
		t.Error("it ran without a program to start")
	}
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "9968 streams were run instead") {
		t.Errorf("%q", s.Notes)
	}
}

func TestMostSpansAtOnce(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	for name, c := range map[string]struct {
		spans []span
		want  int
	}{
		"none":       {nil, 0},
		"apart":      {[]span{{at(0), at(1)}, {at(2), at(3)}}, 1},
		"overlapped": {[]span{{at(0), at(5)}, {at(2), at(3)}, {at(4), at(9)}}, 2},
		"nested":     {[]span{{at(0), at(9)}, {at(1), at(8)}, {at(2), at(7)}}, 3},
	} {
		if got := most(c.spans); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Streamed turns of a long conversation hold the same ids as whole ones.
func TestLongStreams(t *testing.T) {
	target := startEngine(t)
	r, err := Load(Job{Target: target, Long: []LongJob{{Turns: 3, Tokens: 600, Stream: true, Beside: target, Pairs: 2}}})
	if err != nil || len(r.Long) != 1 || r.Long[0].Added.N != 2 || r.Long[0].LastBytes < 10_000 || r.Long[0].Bytes < r.Long[0].LastBytes {
		t.Errorf("%v, %+v", err, r)
	}
}
