// Package tokenize counts and decodes text with OpenAI's byte pair encodings.
//
// It answers two questions: roughly how long is this text (for engines that have no tokenizer of their own to ask),
// and which bytes does this token id stand for (for the built-in engine). The vocabularies are embedded in the binary;
// nothing is downloaded.
//
//	enc, err := tokenize.ForModel("gpt-5-mini")
//	n := enc.Count("How long is this?")
//
// What this package computes is an estimate of what a foreign engine would do. It never becomes a token id of a rollout.
package tokenize

import (
	"fmt"
	"strings"
	"sync"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
)

// Encoding turns text into token ids and back. Its methods are safe for concurrent use.
type Encoding interface {
	// Name is the encoding's own name, such as o200k_base.
	Name() string
	// Size is the number of ids: every id of Encode lies in [0, Size).
	Size() int
	// Encode returns the ids of text. Spellings of special tokens are ordinary text to it, and invalid UTF-8 counts as
	// U+FFFD.
	Encode(text string) []int32
	// Count returns len(Encode(text)).
	Count(text string) int
	// Token returns the bytes that one id stands for, which need not be whole characters, and whether there is such an
	// id.
	Token(id int32) (string, bool)
	// Decode returns the bytes that ids stand for, exactly: a character split over several tokens stays split when only
	// some of them are given.
	Decode(ids []int32) ([]byte, error)
}

// Name identifies one of the embedded vocabularies.
type Name string

// The embedded vocabularies.
const (
	O200K  Name = "o200k_base"
	CL100K Name = "cl100k_base"
)

// prefixes maps the beginnings of model names to vocabularies; the longest that fits decides.
var prefixes = []struct {
	prefix string
	name   Name
}{
	{"gpt-4o", O200K},
	{"gpt-4.1", O200K},
	{"gpt-4.5", O200K},
	{"gpt-5", O200K},
	{"chatgpt-", O200K},
	{"codex-", O200K},
	{"o1", O200K},
	{"o3", O200K},
	{"o4", O200K},
	{"gpt-4", CL100K},
	{"gpt-3.5", CL100K},
	{"gpt-35", CL100K}, // Azure's spelling
	{"text-embedding-", CL100K},
}

// NameFor returns the vocabulary of a model: by the longest known beginning of its name, O200K when none is known. A
// publisher before the name ("openai/gpt-4o") and the marker of a fine-tuned model ("ft:gpt-4o:…") are passed over.
func NameFor(model string) Name {
	model = model[strings.LastIndexByte(model, '/')+1:]
	model = strings.TrimPrefix(model, "ft:")
	best, name := 0, O200K
	for _, p := range prefixes {
		if len(p.prefix) > best && strings.HasPrefix(model, p.prefix) {
			best, name = len(p.prefix), p.name
		}
	}
	return name
}

// ForModel returns the encoding of a model, loading its vocabulary if this process has not done so yet.
func ForModel(model string) (Encoding, error) { return Load(NameFor(model)) }

// The parsed vocabularies are constant data, some 40 MB and half a second of work each: a process makes each at most
// once, on first use.
var (
	o200k  = sync.OnceValues(func() (*bpe, error) { return parse(O200K, o200kPattern) })
	cl100k = sync.OnceValues(func() (*bpe, error) { return parse(CL100K, cl100kPattern) })
)

// Load returns one of the embedded vocabularies. The first call for each takes about half a second.
func Load(name Name) (Encoding, error) {
	var enc *bpe
	var err error
	switch name {
	case O200K:
		enc, err = o200k()
	case CL100K:
		enc, err = cl100k()
	default:
		return nil, fmt.Errorf("tokenize: no vocabulary %q; there are %s and %s", name, O200K, CL100K)
	}
	if err != nil {
		return nil, err // not a typed nil
	}
	return enc, nil
}

// bpe is a loaded vocabulary.
type bpe struct {
	name   Name
	tokens []string // by id
	tik    *tiktoken.Tiktoken
}

// parse builds a vocabulary from its embedded file. It goes around tiktoken.GetEncoding, which would set a loader for
// the whole process and download without one.
func parse(name Name, pattern string) (*bpe, error) {
	ranks, err := loader.NewOfflineLoader().LoadTiktokenBpe(string(name) + ".tiktoken")
	if err != nil {
		return nil, fmt.Errorf("tokenize: reading the embedded vocabulary %s: %w", name, err)
	}
	core, err := tiktoken.NewCoreBPE(ranks, map[string]int{}, pattern)
	if err != nil {
		return nil, fmt.Errorf("tokenize: building the vocabulary %s: %w", name, err)
	}
	tokens := make([]string, len(ranks))
	for token, id := range ranks {
		if id < 0 || id >= len(tokens) {
			return nil, fmt.Errorf("tokenize: the embedded vocabulary %s has an id %d among %d", name, id, len(tokens))
		}
		tokens[id] = token
	}
	enc := &tiktoken.Encoding{Name: string(name), PatStr: pattern, MergeableRanks: ranks}
	return &bpe{name: name, tokens: tokens, tik: tiktoken.NewTiktoken(core, enc, nil)}, nil
}

func (b *bpe) Name() string { return string(b.name) }

func (b *bpe) Size() int { return len(b.tokens) }

func (b *bpe) Encode(text string) []int32 {
	var ids []int32
	for part := range pieces(text) {
		for _, id := range b.tik.EncodeOrdinary(part) {
			ids = append(ids, int32(id))
		}
	}
	return ids
}

func (b *bpe) Count(text string) int {
	n := 0
	for part := range pieces(text) {
		n += len(b.tik.EncodeOrdinary(part))
	}
	return n
}

func (b *bpe) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(b.tokens) {
		return "", false
	}
	return b.tokens[id], true
}

func (b *bpe) Decode(ids []int32) ([]byte, error) {
	out := make([]byte, 0, 4*len(ids))
	for i, id := range ids {
		token, ok := b.Token(id)
		if !ok {
			return nil, fmt.Errorf("tokenize: id %d at position %d is not in %s, which has %d ids", id, i, b.name, len(b.tokens))
		}
		out = append(out, token...)
	}
	return out, nil
}
