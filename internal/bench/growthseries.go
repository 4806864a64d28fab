package bench

import "math"

// Series is what was measured while one thing grew.
type Series struct {
	Name    string    `json:"name"` // of its picture's file
	Title   string    `json:"title"`
	Axis    string    `json:"axis"` // what the sizes count
	Sizes   []int     `json:"sizes"`
	Bytes   []float64 `json:"bytes"` // that passed in all: requests and answers, on both sides of the proxy
	Figures []*Figure `json:"figures"`
	Notes   []string  `json:"notes"` // what could not be run, and why
}

// Figure is one thing that was measured, for each of the series' sizes.
type Figure struct {
	Name   string    `json:"name"`
	Title  string    `json:"title"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
	// Bytes are those that the figure is held against: all that passed, or those of one call for what is measured per call.
	Bytes []float64 `json:"bytes"`
	// PerMiB is Values per MiB of Bytes.
	PerMiB []float64 `json:"per_mib"`
	// Steps says, for each step from one size to the next, by which power of the bytes the figure grew: 1 is linear, more is
	// worse. It is 0 where that cannot be said:
	// of a figure that is zero, and of one per chunk or stream, whose bytes are always the same.
	Steps []float64 `json:"steps"`
}

// point begins a size; figures noted from now on are its own.
func (s *Series) point(size int, bytes float64) {
	s.Sizes, s.Bytes = append(s.Sizes, size), append(s.Bytes, bytes)
}

// note adds a figure of the newest size, held against all bytes that passed.
func (s *Series) note(name, title, unit string, value float64) {
	s.noteOf(name, title, unit, value, s.Bytes[len(s.Bytes)-1])
}

// noteOf adds a figure of the newest size, held against the bytes of one call.
func (s *Series) noteOf(name, title, unit string, value, bytes float64) {
	value = significant(max(value, 0))
	for _, f := range s.Figures {
		if f.Name == name {
			f.Values, f.Bytes = append(f.Values, value), append(f.Bytes, bytes)
			return
		}
	}
	s.Figures = append(s.Figures, &Figure{Name: name, Title: title, Unit: unit, Values: []float64{value}, Bytes: []float64{bytes}})
}

// relate holds every figure against the bytes.
func (s *Series) relate() {
	for _, f := range s.Figures {
		for i, v := range f.Values {
			f.PerMiB = append(f.PerMiB, significant(v/(f.Bytes[i]/(1<<20))))
			if i == 0 {
				continue
			}
			step := 0.0
			if v > 0 && f.Values[i-1] > 0 && f.Bytes[i] > 1.2*f.Bytes[i-1] {
				step = math.Log(v/f.Values[i-1]) / math.Log(f.Bytes[i]/f.Bytes[i-1])
			}
			f.Steps = append(f.Steps, math.Round(step*100)/100)
		}
	}
	if s.Notes == nil {
		s.Notes = []string{}
	}
}

// significant keeps four digits: nothing here is known better.
func significant(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-3)
	return math.Round(v/unit) * unit
}
