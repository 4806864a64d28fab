package store

import (
	"encoding/json"
	"fmt"
	"testing"

	"captureproxy/internal/record"
)

// conversation is a session's calls, each two messages longer; with changing, the parameters before the messages and the system
// prompt are others in every call.
func conversation(turns int, changing bool) []*record.Call {
	var calls []*record.Call
	var history []json.RawMessage
	var prompt []int32
	for n := 1; n <= turns; n++ {
		mark := 0
		if changing {
			mark = n
		}
		history = append(history, json.RawMessage(fmt.Sprintf(`{"role":"user","content":"%0200d"}`, n)), json.RawMessage(fmt.Sprintf(`{"role":"assistant","content":"%0200d"}`, n)))
		for range 100 {
			prompt = append(prompt, int32(len(prompt)*7919%150000))
		}
		body := fmt.Appendf(nil, `{"user":"%040d","messages":[`, mark)
		c := &record.Call{Number: n, Choices: []record.Choice{{PromptIDs: append([]int32{}, prompt...)}}}
		for i, m := range append([]json.RawMessage{json.RawMessage(fmt.Sprintf(`{"role":"system","content":"%0200d"}`, mark))}, history...) {
			if i > 0 {
				body = append(body, ',')
			}
			c.Cuts = append(c.Cuts, len(body), len(body)+len(m))
			body = append(body, m...)
		}
		c.Body = append(body, "]}"...)
		for i := 0; i < len(c.Cuts); i += 2 {
			c.Messages = append(c.Messages, c.Body[c.Cuts[i]:c.Cuts[i+1]:c.Cuts[i+1]])
		}
		calls = append(calls, c)
	}
	return calls
}

// What a call brings to the disk and to the dictionary does not grow with the conversation before it, also where its
// beginning is another one each time.
func TestACallCostsWhatIsNewInIt(t *testing.T) {
	for _, changing := range []bool{false, true} {
		d, h := newDictionary(0), newHasher()
		const late = 200
		var lengths, nodes []int
		for _, c := range conversation(late, changing) {
			p, err := h.prepare(c)
			if err != nil {
				t.Fatal(err)
			}
			known := len(d.nodes)
			lengths, nodes = append(lengths, len(d.appendCall(nil, p))), append(nodes, len(d.nodes)-known)
		}
		early := 20
		// The prompt's tail of fewer ids than a block is stored with every call, and numbers get a byte longer.
		if tail := 3 * blockSize; lengths[late-1] > lengths[early]+tail+64 {
			t.Errorf("changing %t: call %d takes %d bytes, call %d took %d", changing, late, lengths[late-1], early, lengths[early])
		}
		if nodes[late-1] > nodes[early] {
			t.Errorf("changing %t: call %d brings %d nodes, call %d brought %d", changing, late, nodes[late-1], early, nodes[early])
		}
	}
}

// What a reader holds of a conversation does not grow with turns × messages: lists that differ at their beginning share the rest.
func TestReadMessagesAreSharedBehindAChangingBeginning(t *testing.T) {
	d, h := newDictionary(0), newHasher()
	calls := conversation(50, true)
	var payloads [][]byte
	for _, c := range calls {
		p, err := h.prepare(c)
		if err != nil {
			t.Fatal(err)
		}
		payloads = append(payloads, d.appendCall(nil, p))
	}
	got, err := DecodeCalls(payloads)
	if err != nil {
		t.Fatal(err)
	}
	memory := map[*byte]bool{}
	for _, c := range got {
		for _, m := range c.Messages {
			memory[&m[0]] = true
		}
	}
	if want := 50 + 2*50; len(memory) != want { // a system prompt each, and the history once
		t.Errorf("the messages of 50 calls lie in %d places, want %d", len(memory), want)
	}
}

// BenchmarkConversation stores and reads long sessions; bytes are those of the requests.
func BenchmarkConversation(b *testing.B) {
	for _, turns := range []int{250, 500, 1000} {
		for _, changing := range []bool{false, true} {
			calls := conversation(turns, changing)
			passed := 0
			for _, c := range calls {
				passed += len(c.Body)
			}
			b.Run(fmt.Sprintf("turns=%d/changing=%t", turns, changing), func(b *testing.B) {
				b.SetBytes(int64(passed))
				b.ReportAllocs()
				stored, nodes := 0, 0
				for b.Loop() {
					d, h := newDictionary(0), newHasher()
					var payloads [][]byte
					stored = 0
					for _, c := range calls {
						p, err := h.prepare(c)
						if err != nil {
							b.Fatal(err)
						}
						payloads = append(payloads, d.appendCall(nil, p))
						stored += len(payloads[len(payloads)-1])
					}
					nodes = len(d.nodes)
					if _, err := DecodeCalls(payloads); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(stored)/float64(turns), "stored-B/turn")
				b.ReportMetric(float64(nodes)/float64(turns), "nodes/turn")
			})
		}
	}
}
