package engine

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// forcing guards the measurement of whether the engine follows prompt ids.
type forcing struct {
	mu   sync.Mutex
	done bool
}

// ForcedField is the field in which the engine takes prompt ids beside the messages, "" when it follows none. Where the probe
// did not find one the first caller looks again (a capture level that was given is not probed); an ability that was lost
// stays lost.
func (u *Upstream) ForcedField(ctx context.Context) string {
	u.forcing.mu.Lock()
	defer u.forcing.mu.Unlock()
	p := u.Profile()
	if u.forcing.done || p.Forced != "" {
		u.forcing.done = true
		return p.Forced
	}
	way, stream := p.Whole, []Param(nil)
	if way.Level != record.LevelTokens {
		way, stream = p.Stream, probeStream
	}
	found := *p
	plain := u.ask(ctx, p, question{way: way, params: append([]Param{{"max_tokens", "1"}, probeMessages}, stream...), own: way.names()})
	if !plain.answered() {
		return ""
	}
	u.measureForced(ctx, &found, []*asked{plain})
	if ctx.Err() != nil { // out of time: nothing is known
		return ""
	}
	u.forcing.done = true
	u.learn(func(p *Profile) { p.Forced = found.Forced })
	return found.Forced
}

// ForcedMember is the body's member that holds prompt ids: its key and its value.
func ForcedMember(field string, ids []int32) (key string, value []byte) {
	key, inner, nested := strings.Cut(field, ".")
	b := make([]byte, 0, len(inner)+8+7*len(ids)) // an id has six digits at most, nearly always
	if nested {
		b = append(jsonscan.AppendQuote(append(b, '{'), inner), ':')
	}
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	b = append(b, ']')
	if nested {
		b = append(b, '}')
	}
	return key, b
}
