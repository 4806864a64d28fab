package engine

import (
	"container/list"
	"strings"
	"sync"
)

// Hub keeps the engines of a proxy: the default one and those that sessions name. Sessions that name the same engine
// with the same model and credential share its connections and what was measured of it. It is safe for concurrent use.
type Hub struct {
	defaults Config
	primary  *Upstream // nil when there is no default engine

	mu    sync.Mutex
	byKey map[Config]*list.Element
	used  *list.List // of kept, the one asked for last in front
}

type kept struct {
	config Config
	engine *Upstream
}

// maxKept bounds the engines that are kept for sessions to come. Sessions go on with an engine that was let go.
const maxKept = 256

// NewHub returns a hub. defaults describe the default engine, whose timeouts all engines have; without a URL there is
// none.
func NewHub(defaults Config) (*Hub, error) {
	h := &Hub{defaults: defaults, byKey: map[Config]*list.Element{}, used: list.New()}
	if defaults.URL != "" {
		up, err := NewUpstream(defaults)
		if err != nil {
			return nil, err
		}
		h.primary = up
	}
	return h, nil
}

// Default returns the default engine, nil when there is none.
func (h *Hub) Default() *Upstream { return h.primary }

// Get returns the engine that c describes. A c without a URL means the default engine, with c's model if it names one;
// it is nil when there is none. A c with a URL gets none of the default engine's credentials.
func (h *Hub) Get(c Config) (*Upstream, error) {
	c.Timeouts, c.Memory = h.defaults.Timeouts, h.defaults.Memory
	c.URL = strings.TrimRight(c.URL, "/")
	if c.URL == "" {
		model := c.Model
		if c = h.defaults; model == "" || model == c.Model || h.primary == nil {
			return h.primary, nil
		}
		c.Model = model
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.byKey[c]; ok {
		h.used.MoveToFront(e)
		return e.Value.(*kept).engine, nil
	}
	up, err := NewUpstream(c)
	if err != nil {
		return nil, err
	}
	h.byKey[c] = h.used.PushFront(&kept{config: c, engine: up})
	if h.used.Len() > maxKept {
		oldest := h.used.Remove(h.used.Back()).(*kept)
		delete(h.byKey, oldest.config)
		oldest.engine.Close()
	}
	return up, nil
}

// Named returns the engines that are kept beside the default one, the one asked for last first.
func (h *Hub) Named() []*Upstream {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*Upstream, 0, h.used.Len())
	for e := h.used.Front(); e != nil; e = e.Next() {
		out = append(out, e.Value.(*kept).engine)
	}
	return out
}

// Close closes the unused connections of all engines.
func (h *Hub) Close() {
	if h.primary != nil {
		h.primary.Close()
	}
	for _, up := range h.Named() {
		up.Close()
	}
	h.defaults.Memory.Close()
}

// Keyed reports whether the engine is sent a credential.
func (u *Upstream) Keyed() bool { return u.key != "" }

// withoutKey takes the credential out of a text of the engine's, who may repeat what it was sent.
func (u *Upstream) withoutKey(text string) string {
	if len(u.key) < 8 { // what is so short stands in words that are no secret
		return text
	}
	return strings.ReplaceAll(text, u.key, "[the key]")
}
