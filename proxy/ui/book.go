package ui

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"captureproxy/export"
	"captureproxy/export/show"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
)

// book is a document with what its pages look up in it.
type book struct {
	key    string // in addresses
	doc    *export.Rollout
	status *control.Status
	roles  map[string]export.Role
	at     map[string]int // turns by node id
	rowOf  []int          // per turn the row that shows it best, -1 for none
}

func newBook(key string, doc *export.Rollout, status *control.Status) *book {
	b := &book{key: key, doc: doc, status: status, roles: show.Roles(doc), at: map[string]int{}, rowOf: make([]int, len(doc.Turns))}
	for i := range doc.Turns {
		b.at[doc.Turns[i].NodeID], b.rowOf[i] = i, -1
	}
	rank := func(row int) int {
		if row < 0 {
			return -1
		}
		switch r := &doc.Sequences[row]; {
		case r.Trainable:
			return 3
		case r.Role == export.Agent:
			return 2
		case r.Role == export.Auxiliary:
			return 1
		}
		return 0
	}
	for k := range doc.Sequences {
		for _, id := range doc.Sequences[k].NodeIDs {
			if i, ok := b.at[id]; ok && rank(k) > rank(b.rowOf[i]) {
				b.rowOf[i] = k
			}
		}
	}
	return b
}

// role is a turn's, for pictures: one that a document says nothing of counts as auxiliary.
func (b *book) role(i int) export.Role {
	switch r := b.roles[b.doc.Turns[i].NodeID]; r {
	case export.Agent, export.Auxiliary, export.Discarded:
		return r
	}
	return export.Auxiliary
}

// turn finds a node, -1 for none.
func (b *book) turn(id string) int {
	if i, ok := b.at[id]; ok && id != "" {
		return i
	}
	return -1
}

// span is where a turn's sampled tokens lie in its row: behind its prompt, which the row begins with. ok is false where the
// row has no tokens.
func (b *book) span(i int) (row, start, end int, ok bool) {
	t := &b.doc.Turns[i]
	row, start, end = b.rowOf[i], t.NPrompt, t.NPrompt+t.NSampled
	return row, start, end, row >= 0 && t.NPrompt > 0 && end <= len(b.doc.Sequences[row].InputIDs)
}

func (b *book) running() bool { return b.doc.Status == record.Running }

// harnessOf is the first harness that a turn names.
func harnessOf(doc *export.Rollout) string {
	for i := range doc.Turns {
		if h := doc.Turns[i].Harness; h.Name != "" {
			return strings.TrimSpace(h.Name + " " + h.Version)
		}
	}
	return ""
}

// metadataString is a text that the session's creator noted, "" for none.
func metadataString(doc *export.Rollout, name string) string {
	var s string
	if json.Unmarshal(doc.Metadata[name], &s) != nil { // absent, or another kind of value
		return ""
	}
	return s
}

// shelf keeps the books that were opened last, so that the parts of a page do not derive the same document again.
type shelf struct {
	source Source
	mu     sync.Mutex
	books  []*kept // the one used last in front
}

type kept struct {
	key, version string
	opening      sync.Mutex // held by the one who derives
	book         *book
}

// maxBooks bounds the shelf: a document may take tens of megabytes.
const maxBooks = 8

func (s *shelf) open(ctx context.Context, key string) (*book, error) {
	var early *export.Rollout
	if !s.has(key) { // first: a source that derives the document need not derive the status again
		doc, err := s.source.Document(ctx, key)
		if err != nil {
			return nil, err
		}
		early = doc
	}
	status, err := s.source.Status(ctx, key)
	if err != nil {
		return nil, err
	}
	version, err := versionOf(status)
	if err != nil {
		return nil, err
	}
	k := s.slot(key, version)
	k.opening.Lock()
	defer k.opening.Unlock()
	if k.book == nil {
		doc := early
		if doc == nil || !sameMoment(doc, status) {
			if doc, err = s.source.Document(ctx, key); err != nil {
				return nil, err
			}
		}
		k.book = newBook(key, doc, status)
	}
	fresh := *k.book
	fresh.status = status // with the calls that are under way now
	return &fresh, nil
}

func (s *shelf) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.books, func(k *kept) bool { return k.key == key })
}

// sameMoment reports whether nothing came between a document and a status that was asked for after it.
func sameMoment(doc *export.Rollout, s *control.Status) bool {
	reward := doc.Reward == nil && s.Reward == nil || doc.Reward != nil && s.Reward != nil && *doc.Reward == *s.Reward
	return reward && doc.Status == s.Status && doc.Stats.Turns == s.NTurns && doc.Stats.FailedCalls == s.NFailedCalls &&
		doc.BudgetStops == s.BudgetStopCount && len(doc.Metadata) == len(s.Metadata)
}

// slot finds the place of a session's document, an empty one if the shelf has none of this version.
func (s *shelf) slot(key, version string) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range s.books {
		if k.key != key {
			continue
		}
		copy(s.books[1:i+1], s.books[:i])
		if k.version != version {
			k = &kept{key: key, version: version}
		}
		s.books[0] = k
		return k
	}
	k := &kept{key: key, version: version}
	s.books = append([]*kept{k}, s.books...)
	if len(s.books) > maxBooks {
		s.books = s.books[:maxBooks]
	}
	return k
}
