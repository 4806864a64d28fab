package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"captureproxy/internal/jsonscan"
)

// Rendering is how the engine renders what follows an answer: Marker ends the answer, IDs are the rest, up to where the next
// answer begins.
type Rendering struct {
	Marker int32
	IDs    []int32
}

// Render has the engine render messages that follow an answer, as they stand in any conversation: behind dummy texts. args are
// the template's arguments, a JSON object or "". answer is the one that is followed, for templates that render a tool's
// result only behind its call.
//
// Nothing is tokenised here and no template is guessed. The engine renders the dummy conversation alone and with what is new;
// where the second does not begin with the first there is no telling what is new, and that is an error.
func (u *Upstream) Render(ctx context.Context, args string, answer json.RawMessage, added []json.RawMessage) (Rendering, error) {
	o, err := u.opening(ctx, args)
	if err != nil {
		return Rendering{}, err
	}
	if !o.wantsCalls() {
		ids, err := u.rendered(ctx, args, true, append(slices.Clone(dummies[:]), added...)...)
		if err == nil {
			if rest, ok := o.after(ids); ok {
				return Rendering{o.marker, rest}, nil
			}
			if rest, ok, err := u.afterFollowed(ctx, args, o, ids); err != nil || ok {
				return Rendering{o.marker, rest}, err
			}
		}
		var refused *refusal
		if err != nil && !errors.As(err, &refused) {
			return Rendering{}, err
		}
	}
	return u.renderBehindCalls(ctx, args, o, answer, added)
}

// The dummy conversation. No template merges its words with what stands around them, and none of them ends like the other.
var dummies = [...]json.RawMessage{
	json.RawMessage(`{"role":"user","content":"one"}`), json.RawMessage(`{"role":"assistant","content":"two"}`),
}

var otherAnswer = json.RawMessage(`{"role":"assistant","content":"seven"}`)

// opening is the rendering of the dummy conversation under one set of template arguments, measured once.
type opening struct {
	marker int32
	asks   []int32 // up to where the answer would begin
	// alone is the rendering up to the answer's end marker. Some templates render an answer otherwise when something follows
	// it; followed is that form, nil until it was asked for.
	alone []int32

	mu       sync.Mutex
	followed []int32
	// calls says that the template renders tools' results only behind their calls.
	calls bool
}

func (o *opening) wantsCalls() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls
}

// after returns what follows the dummy conversation in a longer rendering.
func (o *opening) after(ids []int32) ([]int32, bool) {
	o.mu.Lock()
	followed := o.followed
	o.mu.Unlock()
	for _, begin := range [][]int32{o.alone, followed} {
		if len(begin) > 0 && len(ids) > len(begin) && slices.Equal(ids[:len(begin)], begin) {
			return ids[len(begin):], true
		}
	}
	return nil, false
}

// openings are those of one engine, by model and template arguments.
type openings struct {
	mu    sync.Mutex
	byKey map[string]*opening
}

// maxOpenings bounds how many sets of template arguments are remembered.
const maxOpenings = 64

func (u *Upstream) opening(ctx context.Context, args string) (*opening, error) {
	key := u.Profile().Served + "\x00" + args
	u.openings.mu.Lock()
	o := u.openings.byKey[key]
	u.openings.mu.Unlock()
	if o != nil {
		return o, nil
	}
	one, err := u.rendered(ctx, args, false, dummies[:]...)
	if err != nil {
		return nil, err
	}
	other, err := u.rendered(ctx, args, false, dummies[0], otherAnswer)
	if err != nil {
		return nil, err
	}
	asks, err := u.rendered(ctx, args, true, dummies[0])
	if err != nil {
		return nil, err
	}
	tail := 0
	for tail < min(len(one), len(other)) && one[len(one)-1-tail] == other[len(other)-1-tail] {
		tail++
	}
	if tail == 0 || tail == len(one) || tail == len(other) {
		return nil, errors.New("the template ends an answer with no marker of its own")
	}
	o = &opening{marker: one[len(one)-tail], asks: asks, alone: one[:len(one)-tail+1]}
	u.openings.mu.Lock()
	defer u.openings.mu.Unlock()
	if u.openings.byKey == nil || len(u.openings.byKey) >= maxOpenings {
		u.openings.byKey = map[string]*opening{}
	}
	u.openings.byKey[key] = o
	return o, nil
}

// afterFollowed is for templates that render an answer otherwise once something follows it (those that keep the thoughts of
// the last one only): what the answer looks like then is asked of the engine too, once.
func (u *Upstream) afterFollowed(ctx context.Context, args string, o *opening, ids []int32) ([]int32, bool, error) {
	o.mu.Lock()
	known := o.followed != nil
	o.mu.Unlock()
	if known {
		return nil, false, nil
	}
	longer, err := u.rendered(ctx, args, false, append(slices.Clone(dummies[:]), dummies[0])...)
	if err != nil {
		return nil, false, err
	}
	end := nth(longer, o.marker, count(o.alone, o.marker))
	if end < 0 {
		return nil, false, nil
	}
	o.mu.Lock()
	o.followed = longer[:end+1]
	o.mu.Unlock()
	rest, ok := o.after(ids)
	return rest, ok, nil
}

func count(ids []int32, id int32) (n int) {
	for _, i := range ids {
		if i == id {
			n++
		}
	}
	return n
}

// nth is the index of the n-th occurrence of an id, -1 for none.
func nth(ids []int32, id int32, n int) int {
	for i, x := range ids {
		if x == id {
			if n--; n == 0 {
				return i
			}
		}
	}
	return -1
}

// renderBehindCalls puts the answer's own calls into the dummy answer.
func (u *Upstream) renderBehindCalls(ctx context.Context, args string, o *opening, answer json.RawMessage, added []json.RawMessage) (Rendering, error) {
	calls := toolCallsOf(answer)
	if calls == nil {
		return Rendering{}, errors.New("the template renders the conversation otherwise once something follows it")
	}
	dummy := append(append([]byte(`{"role":"assistant","content":"two","tool_calls":`), calls...), '}')
	alone, err := u.rendered(ctx, args, false, dummies[0], dummy)
	if err != nil {
		return Rendering{}, err
	}
	ids, err := u.rendered(ctx, args, true, append([]json.RawMessage{dummies[0], dummy}, added...)...)
	if err != nil {
		return Rendering{}, err
	}
	end := len(alone) - 1
	for end >= 0 && alone[end] != o.marker {
		end--
	}
	if end < 0 || len(ids) <= end+1 || !slices.Equal(ids[:end+1], alone[:end+1]) {
		return Rendering{}, errors.New("the template renders the conversation otherwise once something follows it")
	}
	o.mu.Lock()
	o.calls = true
	o.mu.Unlock()
	return Rendering{o.marker, ids[end+1:]}, nil
}

func toolCallsOf(message []byte) []byte {
	cur := jsonscan.New(message)
	for m := cur.Object(); m.Next(); {
		if string(m.Key) == "tool_calls" && cur.Peek() == '[' {
			if raw := cur.Raw(); len(bytes.TrimSpace(raw)) > 2 {
				return raw
			}
		}
	}
	return nil
}

// Departs has the engine render an answer as it came back, with what follows it, and says how far behind the prompt that
// asked for it that rendering leaves the sampled ids; negative where it leaves the prompt itself. broken is false where it
// follows them to their end. Nothing of this is sent anywhere: it shows what a conversation would have become.
func (u *Upstream) Departs(ctx context.Context, args string, answer json.RawMessage, added []json.RawMessage, sampled []int32) (at int, broken bool, err error) {
	o, err := u.opening(ctx, args)
	if err != nil {
		return 0, false, err
	}
	ids, err := u.rendered(ctx, args, true, append([]json.RawMessage{dummies[0], answer}, added...)...)
	if err != nil {
		return 0, false, err
	}
	for i, id := range slices.Concat(o.asks, sampled) {
		if i >= len(ids) || ids[i] != id {
			return i - len(o.asks), true, nil
		}
	}
	return len(sampled), false, nil
}

// SameTemplate reports whether two sets of template arguments render alike, as far as a short conversation shows. Where the
// engine cannot be asked they count as different.
func (u *Upstream) SameTemplate(ctx context.Context, a, b string) bool {
	var first []int32
	for i, args := range []string{a, b} {
		for _, generate := range []bool{false, true} {
			ids, err := u.rendered(ctx, args, generate, dummies[:]...)
			if err != nil {
				return false
			}
			if first = append(first, ids...); i == 1 && generate {
				half := len(first) / 2
				return len(first)%2 == 0 && slices.Equal(first[:half], first[half:])
			}
		}
	}
	return false
}

// refusal is an engine's answer that it will not render something.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// rendered asks the engine for the ids of a conversation (vLLM's and SGLang's POST /tokenize).
func (u *Upstream) rendered(ctx context.Context, args string, generate bool, messages ...json.RawMessage) ([]int32, error) {
	body := []byte(`{"add_generation_prompt":false`)
	if generate {
		body = []byte(`{"add_generation_prompt":true`)
	}
	if served := u.Profile().Served; served != "" {
		body = jsonscan.AppendQuote(append(body, `,"model":`...), served)
	}
	body = append(body, `,"messages":[`...)
	body = append(append(body, bytes.Join(asBytes(messages), []byte(","))...), ']')
	if inner := bytes.Trim([]byte(args), "{} \n"); len(inner) > 0 {
		body = append(append(body, ','), args[1:len(args)-1]...)
	}
	body = append(body, '}')
	resp, err := u.Do(ctx, &Request{Method: http.MethodPost, Path: "/tokenize", AtOrigin: true, Header: http.Header{"Content-Type": {"application/json"}}, Body: body})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := ReadAll(resp.Body, 0)
	if err != nil {
		return nil, err
	}
	if resp.Status != http.StatusOK {
		return nil, &refusal{fmt.Sprintf("/tokenize answers %d: %s", resp.Status, Excerpt(data))}
	}
	cur := jsonscan.New(data)
	for m := cur.Object(); m.Next(); {
		if string(m.Key) == "tokens" {
			if ids, isArray, whole := cur.AppendInts(nil); isArray && whole && len(ids) > 0 {
				return ids, nil
			}
			break
		}
	}
	return nil, &refusal{"/tokenize gives no ids: " + Excerpt(data)}
}

func asBytes(messages []json.RawMessage) [][]byte {
	list := make([][]byte, len(messages))
	for i, m := range messages {
		list[i] = m
	}
	return list
}
