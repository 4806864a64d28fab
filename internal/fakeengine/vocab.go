package fakeengine

import (
	"strings"
	"sync"

	"captureproxy/tokenize"
)

// The template's special tokens lie beyond o200k's own ids, so that no text encodes to them.
const (
	idStart int32 = 200100 + iota
	idEnd
	idThink
	idThinkEnd
	idCall
	idCallEnd
	idLimit
)

// VocabSize is one more than the largest id that the engine uses.
const VocabSize = int(idLimit)

// EndID is the id that ends a message; sampled, it ends the answer.
const EndID = idEnd

var specials = [...]string{"<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"}

// vocab encodes text and remembers what it encoded: a harness sends the same messages over and over.
type vocab struct {
	enc      tokenize.Encoding
	texts    idCache // by text
	messages idCache // by a message's raw JSON
	tools    idCache // by a manifest's raw JSON
	odd      Odd
}

// cacheBytes bounds each of a vocab's caches.
const cacheBytes = 32 << 20

func newVocab(enc tokenize.Encoding) *vocab {
	v := &vocab{enc: enc}
	v.texts.limit, v.messages.limit, v.tools.limit = cacheBytes, cacheBytes, cacheBytes
	return v
}

// encode returns the ids of text, in which special tokens' spellings mean nothing. The slice is shared: read only.
func (v *vocab) encode(text string) []int32 {
	if text == "" {
		return nil
	}
	return v.texts.get(text, func() []int32 { return v.enc.Encode(text) })
}

// parse returns the ids of text in which special tokens are spelled out, as in a completions prompt.
func (v *vocab) parse(text string) []int32 {
	var ids []int32
	for text != "" {
		at, which := len(text), -1
		for i, s := range specials {
			if p := strings.Index(text, s); p >= 0 && p < at {
				at, which = p, i
			}
		}
		ids = append(ids, v.encode(text[:at])...)
		text = text[at:]
		if which >= 0 {
			ids = append(ids, idStart+int32(which))
			text = text[len(specials[which]):]
		}
	}
	return ids
}

// token returns the spelling of an id; ok is false where there is no such id.
func (v *vocab) token(id int32) (string, bool) {
	if id >= idStart && id < idLimit {
		return specials[id-idStart], true
	}
	return v.enc.Token(id)
}

// decode returns the text of ids, special tokens spelled out; unknown ids are left out.
func (v *vocab) decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		s, _ := v.token(id)
		b.WriteString(s)
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// idCache remembers the ids of strings within a bound on memory. What was not asked for since the bound was last
// reached is forgotten when it is reached again.
type idCache struct {
	limit int

	mu         sync.Mutex
	young, old map[string][]int32
	size       int // of young
}

// get returns the ids of key, computing them once. Callers must not write to the result.
func (c *idCache) get(key string, compute func() []int32) []int32 {
	c.mu.Lock()
	ids, ok := c.young[key]
	if !ok {
		if ids, ok = c.old[key]; ok {
			c.add(key, ids)
		}
	}
	c.mu.Unlock()
	if ok {
		return ids
	}
	ids = compute()
	c.mu.Lock()
	c.add(strings.Clone(key), ids) // key may be a part of a whole request
	c.mu.Unlock()
	return ids
}

func (c *idCache) add(key string, ids []int32) {
	if c.young == nil || c.size > c.limit {
		c.old, c.young, c.size = c.young, make(map[string][]int32), 0
	}
	c.young[key] = ids
	c.size += len(key) + 4*len(ids) + 64
}
