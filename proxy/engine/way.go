package engine

import (
	"slices"
	"strconv"

	"captureproxy/internal/record"
)

// Way is how one kind of call is captured, whole or streamed: what is asked for so that the answer carries token data.
type Way struct {
	// Level is what is captured this way; text means that nothing is asked for.
	Level record.Level
	// Params are set in the body, spelled as chat has them.
	Params []Param
	// Header goes with the request.
	Header [][2]string
	// Derive says that the engine gives no prompt ids: they come from DerivePrompt, and their count must be the usage's.
	Derive bool
}

// Param is one parameter of a request's body and its value as JSON. A dotted name is a field of an object.
type Param struct{ Name, Value string }

// Shape is the kind of a call, as far as engines treat capture parameters differently on it.
type Shape struct{ Stream, Tools bool }

// Way says how a call of a shape is captured. buffered says that a streamed call is made as a whole one, whose answer is
// replayed, because the engine streams less than it tells whole.
func (p *Profile) Way(s Shape) (way Way, buffered bool) {
	if slices.Contains(p.Refused, s) {
		return Way{Level: record.LevelText}, false
	}
	if s.Stream && !p.Buffered {
		return p.Stream, false
	}
	return p.Whole, s.Stream
}

// plainWay is the capture request of vLLM, which most engines that know any take too. top is the smallest top_logprobs
// with which rows come.
func plainWay(level record.Level, top int) Way {
	w := Way{Level: level}
	if level == record.LevelTokens {
		w.Params = append(w.Params, Param{"return_token_ids", "true"})
	}
	if level == record.LevelTokens || level == record.LevelLogprobs {
		w.Params = append(w.Params, Param{"logprobs", "true"}, Param{"top_logprobs", strconv.Itoa(top)})
	}
	return w
}

// fill gives a profile that was not measured the ways that its level implies.
func (p *Profile) fill() {
	if p.Whole.Level != "" || p.Stream.Level != "" || p.Level == "" {
		return
	}
	p.Whole, p.Stream = plainWay(p.Level, p.TopLogprobs), plainWay(p.Level, p.TopLogprobs)
}
