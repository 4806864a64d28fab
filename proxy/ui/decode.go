package ui

import (
	"context"
	"strings"
	"sync"
	"time"

	"captureproxy/export"
	"captureproxy/tokenize"
)

// Detokenize turns ids into text by way of an engine's own tokenizer.
type Detokenize func(ctx context.Context, ids []int32) (string, error)

// decoder knows the texts of tokens. Nothing that it says ever becomes part of a document: it is for reading.
type decoder struct {
	// engine finds the tokenizer of a document's engine, nil where there is none to ask.
	engine func(doc *export.Rollout) Detokenize

	mu      sync.Mutex
	known   map[string]map[int32]string // per engine and model
	failing map[string]time.Time        // until when an engine is not asked again
	now     func() time.Time
}

func newDecoder(engine func(*export.Rollout) Detokenize) *decoder {
	if engine == nil {
		engine = func(*export.Rollout) Detokenize { return nil }
	}
	return &decoder{engine: engine, known: map[string]map[int32]string{}, failing: map[string]time.Time{}, now: time.Now}
}

// Bounds of what is remembered, and of how long a page waits for an engine.
const (
	maxKnown    = 400_000
	askFor      = 2 * time.Second
	askAgainIn  = 30 * time.Second
	maxParallel = 8
)

// encodingOf is the vocabulary of a document whose engine has one of OpenAI's: the session says so in its metadata
// (tokenizer: o200k_base), as whoever plays the engine knows.
func encodingOf(doc *export.Rollout) tokenize.Encoding {
	switch name := tokenize.Name(metadataString(doc, "tokenizer")); name {
	case tokenize.O200K, tokenize.CL100K:
		enc, err := tokenize.Load(name)
		if err != nil { // the vocabulary is part of the program; without it the ids are shown
			return nil
		}
		return enc
	}
	return nil
}

// pieces returns the text of each id; by is who said so, "" where nobody can, and then there are no texts.
func (d *decoder) pieces(ctx context.Context, doc *export.Rollout, ids []int32) (texts []string, by string) {
	if len(ids) == 0 {
		return nil, ""
	}
	if enc := encodingOf(doc); enc != nil {
		texts = make([]string, len(ids))
		for i, id := range ids {
			texts[i], _ = enc.Token(id) // one that tiktoken does not know is shown by its id
		}
		return texts, enc.Name()
	}
	ask := d.engine(doc)
	if ask == nil {
		return nil, ""
	}
	key := doc.Engine.URL + " " + doc.Engine.Model
	missing := d.missing(key, ids)
	if len(missing) > 0 {
		if d.isFailing(key) {
			return nil, ""
		}
		ctx, cancel := context.WithTimeout(ctx, askFor)
		defer cancel()
		found, err := askPieces(ctx, ask, missing)
		if err != nil {
			d.fail(key)
			return nil, ""
		}
		d.remember(key, missing, found)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	texts = make([]string, len(ids))
	for i, id := range ids {
		texts[i] = d.known[key][id]
	}
	return texts, "the engine's tokenizer"
}

// missing lists the ids that are not known yet, each once.
func (d *decoder) missing(key string, ids []int32) []int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known[key]) > maxKnown {
		delete(d.known, key)
	}
	var missing []int32
	seen := map[int32]bool{}
	for _, id := range ids {
		if _, ok := d.known[key][id]; !ok && !seen[id] {
			seen[id] = true
			missing = append(missing, id)
		}
	}
	return missing
}

func (d *decoder) remember(key string, ids []int32, texts []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known[key] == nil {
		if len(d.known) >= maxBooks { // engines of long ago
			clear(d.known)
		}
		d.known[key] = map[int32]string{}
	}
	for i, id := range ids {
		d.known[key][id] = texts[i]
	}
}

func (d *decoder) isFailing(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now().Before(d.failing[key])
}

func (d *decoder) fail(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.failing) > 1000 {
		clear(d.failing)
	}
	d.failing[key] = d.now().Add(askAgainIn)
}

// askPieces decodes ids one by one, a few at a time: decoded together they would not say where one ends.
func askPieces(ctx context.Context, ask Detokenize, ids []int32) ([]string, error) {
	texts, errs := make([]string, len(ids)), make([]error, len(ids))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	next := make(chan int)
	for range min(maxParallel, len(ids)) {
		group.Go(func() {
			for i := range next {
				if texts[i], errs[i] = ask(ctx, ids[i:i+1]); errs[i] != nil {
					cancel() // one that fails is enough to know
				}
			}
		})
	}
	for i := range ids {
		next <- i
	}
	close(next)
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// joined is the text of many ids, for reading.
func joined(texts []string) string { return strings.Join(texts, "") }
