package tokenize_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"captureproxy/tokenize"

	"pgregory.net/rapid"
)

func load(t testing.TB, name tokenize.Name) tokenize.Encoding {
	t.Helper()
	enc, err := tokenize.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return enc
}

func TestNameFor(t *testing.T) {
	for model, want := range map[string]tokenize.Name{
		"gpt-4o": tokenize.O200K, "gpt-4o-mini-2024-07-18": tokenize.O200K, "gpt-4.1-nano": tokenize.O200K,
		"gpt-5": tokenize.O200K, "gpt-5-codex": tokenize.O200K, "o1-preview": tokenize.O200K, "o3": tokenize.O200K,
		"o4-mini": tokenize.O200K, "chatgpt-4o-latest": tokenize.O200K,
		"openai/gpt-4": tokenize.CL100K, "ft:gpt-4o:me::1": tokenize.O200K, "ft:gpt-3.5-turbo:me::1": tokenize.CL100K,
		"gpt-4": tokenize.CL100K, "gpt-4-turbo": tokenize.CL100K, "gpt-4-0314": tokenize.CL100K,
		"gpt-3.5-turbo": tokenize.CL100K, "text-embedding-3-small": tokenize.CL100K,
		"qwen3-coder": tokenize.O200K, "": tokenize.O200K,
	} {
		if got := tokenize.NameFor(model); got != want {
			t.Errorf("NameFor(%q) = %s, want %s", model, got, want)
		}
	}
}

// The ids are those that OpenAI's tiktoken gives.
func TestEncodeKnown(t *testing.T) {
	for _, c := range []struct {
		name tokenize.Name
		text string
		want []int32
	}{
		{tokenize.O200K, "hello world", []int32{24912, 2375}},
		{tokenize.O200K, "👋🏽 日本語", []int32{28823, 233, 52622, 121, 17428, 40909}},
		{tokenize.CL100K, "hello world", []int32{15339, 1917}},
		{tokenize.CL100K, "tiktoken is great!", []int32{83, 1609, 5963, 374, 2294, 0}},
		{tokenize.CL100K, "", nil},
	} {
		enc := load(t, c.name)
		if got := enc.Encode(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: Encode(%q) = %v, want %v", c.name, c.text, got, c.want)
		}
	}
}

func TestSpecialSpellingsAreText(t *testing.T) {
	enc := load(t, tokenize.O200K)
	ids := enc.Encode("<|endoftext|>")
	if len(ids) < 2 {
		t.Fatalf("one id for a special spelling: %v", ids)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, name := range []tokenize.Name{tokenize.O200K, tokenize.CL100K} {
		enc := load(t, name)
		rapid.Check(t, func(t *rapid.T) {
			text := rapid.String().Draw(t, "text")
			ids := enc.Encode(text)
			got, err := enc.Decode(ids)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != text {
				t.Fatalf("%q came back as %q", text, got)
			}
			if n := enc.Count(text); n != len(ids) {
				t.Fatalf("Count = %d, %d ids", n, len(ids))
			}
		})
	}
}

// A token that holds part of a character must decode to those bytes, not to a replacement character.
func TestDecodeSplitCharacter(t *testing.T) {
	enc := load(t, tokenize.O200K)
	ids := enc.Encode("👋🏽")
	first, err := enc.Decode(ids[:1])
	if err != nil {
		t.Fatal(err)
	}
	if utf8.Valid(first) || !strings.HasPrefix("👋🏽", string(first)) {
		t.Fatalf("first token of a split character is %q", first)
	}
}

func TestDecodeUnknown(t *testing.T) {
	enc := load(t, tokenize.CL100K)
	for _, id := range []int32{-1, int32(enc.Size())} {
		if _, err := enc.Decode([]int32{1, id}); err == nil {
			t.Errorf("id %d decoded", id)
		}
		if _, ok := enc.Token(id); ok {
			t.Errorf("id %d has a token", id)
		}
	}
	if _, err := tokenize.Load("p50k"); err == nil {
		t.Error("an unknown vocabulary was loaded")
	}
}

// tiktoken-go alone needs minutes for these.
func TestLongRuns(t *testing.T) {
	enc := load(t, tokenize.O200K)
	for _, text := range []string{strings.Repeat(" ", 200_000), strings.Repeat("a", 200_000), strings.Repeat("語", 60_000)} {
		got, err := enc.Decode(enc.Encode(text))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != text {
			t.Fatalf("%d bytes did not come back", len(text))
		}
	}
}

func TestConcurrent(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			enc, err := tokenize.ForModel("gpt-5")
			if err != nil {
				t.Error(err)
				return
			}
			if n := enc.Count("hello world"); n != 2 {
				t.Errorf("Count = %d", n)
			}
		})
	}
	wg.Wait()
}

func BenchmarkEncode(b *testing.B) {
	enc := load(b, tokenize.O200K)
	text := strings.Repeat("func main() { fmt.Println(\"hello\") } // says hello\n", 80)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		enc.Encode(text)
	}
}
