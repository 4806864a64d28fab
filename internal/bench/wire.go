package bench

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The standard call and the standard stream of SPEC 9.
const (
	promptLen   = 1000
	sampledLen  = 64
	textLen     = 350
	streamLen   = 200
	requestText = 4000 // bytes that 1,000 prompt ids stand for
)

// Model is the name that the engine serves.
const Model = "bench"

// A mark tells the engine which call this is and what to answer. It stands in the request's text and again in the answer's.
type mark struct {
	kind   byte // markCall, markLong or markChain
	number int64
	gap    time.Duration // between two chunks of a stream
	size   int           // markCall: chunks of a stream; others: prompt ids
}

const (
	markCall = 'c' // the standard call, made unique by its number
	markLong = 'l' // a turn of one long conversation: the first size ids of it are the prompt
	// markChain is the same where the harness sends its newest message only: the last mark of the request counts.
	markChain = 'r'
)

const (
	markPrefix = "bench-"
	markLen    = len("bench-c-000000000000-000000-0000000")
)

func (m mark) String() string {
	return fmt.Sprintf("%s%c-%012d-%06d-%07d", markPrefix, m.kind, m.number, m.gap.Microseconds(), m.size)
}

// setNumber writes another number into a mark's bytes.
func setNumber(at []byte, number int64) { putDigits(at[8:20], number) }

// findMark looks for the first mark in a text.
func findMark(b []byte) (mark, bool) {
	for {
		i := bytes.Index(b, []byte(markPrefix))
		if i < 0 || len(b) < i+markLen {
			return mark{}, false
		}
		if m, ok := readMark(b[i : i+markLen]); ok {
			return m, true
		}
		b = b[i+1:]
	}
}

// lastMark is the last mark of a text that has one.
func lastMark(b []byte) (m mark) {
	for {
		i := bytes.LastIndex(b, []byte(markPrefix))
		if i < 0 {
			return m
		}
		if found, ok := findMark(b[i:]); ok {
			return found
		}
		b = b[:i]
	}
}

func readMark(b []byte) (m mark, ok bool) {
	m.kind = b[6]
	number, ok1 := digits(b[8:20])
	gap, ok2 := digits(b[21:27])
	size, ok3 := digits(b[28:35])
	m.number, m.gap, m.size = number, time.Duration(gap)*time.Microsecond, int(size)
	return m, ok1 && ok2 && ok3 && b[7] == '-' && b[20] == '-' && b[27] == '-' && (m.kind == markCall || m.kind == markLong || m.kind == markChain)
}

func digits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// putDigits writes n with leading zeros, as wide as b is.
func putDigits(b []byte, n int64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}

// Ids have five digits, so that one can be written over another.
const (
	firstID = 10000
	idSpan  = 80000
)

// idOf is the id at place i of n: the first two and the last two spell the call's number, the others are what they are.
func idOf(number int64, i, n, salt int) int32 {
	switch {
	case i == 0 || i == n-2:
		return int32(firstID + number%idSpan)
	case i == 1 || i == n-1:
		return int32(firstID + number/idSpan%idSpan)
	}
	return int32(firstID + (i*7919+salt)%idSpan)
}

const (
	promptSalt  = 1
	sampledSalt = 40503
)

// logprobOf spells the logprob at place i of n, always in 15 bytes.
func logprobOf(dst []byte, number int64, i, n int) {
	if i == 0 || i == n-1 {
		copy(dst, "-1.")
		putDigits(dst[3:15], number)
		return
	}
	copy(dst, "-0.")
	putDigits(dst[3:15], 12975780293+int64(i)*104729)
}

// longID is the id at place i of the long conversation.
func longID(i int) int32 { return int32(firstID + (i*i%7907*31+i)%idSpan) }

// hole is a place in prepared bytes that is written anew for every call.
type hole struct{ at, index int }

// answer is a prepared answer with the places that differ from call to call.
type answer struct {
	bytes                     []byte
	marks, ids, salts, values []hole // salts: prompt ids
}

// newAnswer prepares the whole standard answer, HTTP head included.
func newAnswer() *answer {
	a := &answer{}
	var b bytes.Buffer
	text := mark{kind: markCall}.String()
	b.WriteString(`{"id":"chatcmpl-`)
	a.marks = append(a.marks, hole{at: b.Len()})
	b.WriteString(text + `","object":"chat.completion","created":1760000000,"model":"` + Model + `","choices":[{"index":0,"message":{"role":"assistant","content":"`)
	a.marks = append(a.marks, hole{at: b.Len()})
	b.WriteString(text + strings.Repeat(" word", (textLen-len(text))/5) + `","refusal":null,"reasoning":null},"logprobs":{"content":[`)
	for i := range sampledLen {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"token":" word","logprob":`)
		a.values = append(a.values, hole{b.Len(), i})
		b.WriteString(`-0.000000000000,"bytes":[32,119,111,114,100],"top_logprobs":[]}`)
	}
	b.WriteString(`]},"finish_reason":"stop","stop_reason":null,"token_ids":[`)
	a.ids = idList(&b, sampledLen, sampledSalt)
	b.WriteString(`]}],"usage":{"prompt_tokens":1000,"completion_tokens":64,"total_tokens":1064,"prompt_tokens_details":{"cached_tokens":0}},"prompt_token_ids":[`)
	a.salts = idList(&b, promptLen, promptSalt)
	b.WriteString(`],"kv_transfer_params":null}`)
	a.bytes = b.Bytes()
	head := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(a.bytes)) + "\r\n\r\n"
	a.bytes = append([]byte(head), a.bytes...)
	for _, list := range [][]hole{a.marks, a.ids, a.salts, a.values} {
		for i := range list {
			list[i].at += len(head)
		}
	}
	for _, h := range a.values {
		logprobOf(a.bytes[h.at:], 0, h.index, sampledLen)
	}
	return a
}

// idList writes n ids and returns where the four stand that spell the number.
func idList(b *bytes.Buffer, n, salt int) (holes []hole) {
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if i < 2 || i >= n-2 {
			holes = append(holes, hole{b.Len(), i})
		}
		b.WriteString(strconv.Itoa(int(idOf(0, i, n, salt))))
	}
	return holes
}

// clone is a copy whose bytes may be written.
func (a *answer) clone() *answer {
	own := *a
	own.bytes = bytes.Clone(a.bytes)
	return &own
}

// number makes the answer that of one call.
func (a *answer) number(n int64) []byte {
	for _, h := range a.marks {
		setNumber(a.bytes[h.at:], n)
	}
	for _, h := range a.ids {
		putDigits(a.bytes[h.at:h.at+5], int64(idOf(n, h.index, sampledLen, sampledSalt)))
	}
	for _, h := range a.salts {
		putDigits(a.bytes[h.at:h.at+5], int64(idOf(n, h.index, promptLen, promptSalt)))
	}
	for _, h := range []hole{a.values[0], a.values[sampledLen-1]} {
		logprobOf(a.bytes[h.at:], n, h.index, sampledLen)
	}
	return a.bytes
}

// request is a prepared request, HTTP head included.
type request struct {
	bytes []byte
	marks []int
}

// newRequest prepares the standard call to a path, with a key.
func newRequest(t Target, key string, m mark, stream bool) *request {
	text := m.String()
	words := strings.Repeat("some words of a task to be done, ", requestText/33)
	body := `{"model":"` + t.model() + `","user":"` + text + `","messages":[{"role":"system","content":"You are a coding agent. ` + words[:requestText/3] +
		`"},{"role":"user","content":"` + text + " " + words[:requestText*2/3-markLen] + `"}],"max_tokens":` + strconv.Itoa(max(sampledLen, m.size)) + `,"temperature":1`
	if stream {
		body += `,"stream":true`
	}
	body += "}"
	r := &request{bytes: append(requestHead(t, chatPath, key, len(body)), body...)}
	for at := 0; ; {
		i := bytes.Index(r.bytes[at:], []byte(text))
		if i < 0 {
			return r
		}
		r.marks = append(r.marks, at+i)
		at += i + markLen
	}
}

const chatPath = "/chat/completions"

func requestHead(t Target, path, key string, length int) []byte {
	head := "POST " + t.Path + path + " HTTP/1.1\r\nHost: " + t.Addr + "\r\nContent-Type: application/json\r\nAccept: */*\r\nUser-Agent: capture-proxy-bench\r\n"
	for _, h := range t.Headers {
		if name, _, _ := strings.Cut(h, ":"); key == "" || !strings.EqualFold(name, "Authorization") {
			head += h + "\r\n"
		}
	}
	if key != "" {
		head += "Authorization: Bearer " + key + "\r\n"
	}
	return []byte(head + "Content-Length: " + strconv.Itoa(length) + "\r\n\r\n")
}

// number makes the request one call.
func (r *request) number(n int64) []byte {
	for _, at := range r.marks {
		setNumber(r.bytes[at:], n)
	}
	return r.bytes
}
