package bench

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// stampPrefix stands before the send time that the engine writes into a chunk's text, in nanoseconds since 1970.
const (
	stampPrefix = "at:"
	stampLen    = len("1760000000000000000")
	numberLen   = len("000000000000")
)

// stream is a prepared event stream, each piece in the chunked transfer encoding.
type stream struct {
	head      []byte
	first     []byte
	firstIDs  []hole
	piece     []byte // one sampled id
	stamp     int    // where it stands in piece; behind it the call's number
	id, value int    // likewise
	finish    []byte // finish reason
	end       []byte
}

const eventStart = `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1760000000,"model":"` + Model + `","choices":[`

// newStream prepares the standard stream.
func newStream() *stream {
	s := &stream{head: []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n")}
	var b bytes.Buffer
	b.WriteString(eventStart + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[`)
	s.firstIDs = idList(&b, promptLen, promptSalt)
	b.WriteString("]}\n\n")
	var at int
	s.first, at = chunked(b.Bytes())
	for i := range s.firstIDs {
		s.firstIDs[i].at += at
	}
	s.piece, _ = chunked([]byte(eventStart + `{"index":0,"delta":{"content":"` + stampPrefix + `1760000000000000000-000000000000 "},"logprobs":{"content":[{"token":" word","logprob":-0.000000000000,"bytes":[32,119,111,114,100],"top_logprobs":[]}]},"finish_reason":null,"token_ids":[10000]}]}` + "\n\n"))
	s.stamp = bytes.Index(s.piece, []byte(stampPrefix)) + len(stampPrefix)
	s.value = bytes.Index(s.piece, []byte("-0.000000000000"))
	s.id = bytes.Index(s.piece, []byte("[10000]")) + 1
	s.finish, _ = chunked([]byte(eventStart + `{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null}]}` + "\n\n"))
	s.end, _ = chunked([]byte("data: [DONE]\n\n"))
	s.end = append(s.end, "0\r\n\r\n"...)
	return s
}

// chunked frames data and says where it begins.
func chunked(data []byte) (framed []byte, at int) {
	framed = append(strconv.AppendInt(nil, int64(len(data)), 16), "\r\n"...)
	at = len(framed)
	return append(append(framed, data...), "\r\n"...), at
}

func (s *stream) clone() *stream {
	own := *s
	own.first, own.piece = bytes.Clone(s.first), bytes.Clone(s.piece)
	return &own
}

// play writes the stream of one call.
func (s *stream) play(write func([]byte) error, m mark) error {
	for _, h := range s.firstIDs {
		putDigits(s.first[h.at:h.at+5], int64(idOf(m.number, h.index, promptLen, promptSalt)))
	}
	if err := write(s.head); err != nil {
		return err
	}
	if err := write(s.first); err != nil {
		return err
	}
	putDigits(s.piece[s.stamp+stampLen+1:s.stamp+stampLen+1+numberLen], m.number)
	for i := range m.size {
		if m.gap > 0 {
			time.Sleep(m.gap)
		}
		putDigits(s.piece[s.id:s.id+5], int64(idOf(m.number, i, m.size, sampledSalt)))
		logprobOf(s.piece[s.value:], m.number, i, m.size)
		putDigits(s.piece[s.stamp:s.stamp+stampLen], time.Now().UnixNano())
		if err := write(s.piece); err != nil {
			return err
		}
	}
	if err := write(s.finish); err != nil {
		return err
	}
	usage, _ := chunked(fmt.Appendf(nil, `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1760000000,"model":"`+Model+
		`","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`+"\n\n", promptLen, m.size, promptLen+m.size))
	if err := write(usage); err != nil {
		return err
	}
	return write(s.end)
}
