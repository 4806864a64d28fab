package bench

import (
	"fmt"
	"strconv"
)

// longAnswer answers a turn of the long conversation: its prompt is the conversation's first ids, what is sampled are
// those that follow, so that the next turn extends this one.
func (c *engineConn) longAnswer(m mark) error {
	ids := c.engine.longIDs(m.size + sampledLen)
	before := []byte(`{"id":"chatcmpl-` + m.String() + `","object":"chat.completion","created":1760000000,"model":"` + Model + `","choices":[{"index":0,"message":{"role":"assistant","content":"` + longReply(m) + `"},"logprobs":{"content":[`)
	for i := range sampledLen {
		if i > 0 {
			before = append(before, ',')
		}
		before = appendRow(before, m, i)
	}
	before = append(before, `]},"finish_reason":"stop","stop_reason":null,"token_ids":[`...)
	before = append(before, ids[6*m.size:6*(m.size+sampledLen)-1]...)
	before = fmt.Appendf(before, `]}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d},"prompt_token_ids":[`, m.size, sampledLen, m.size+sampledLen)
	prompt, after := ids[:6*m.size-1], []byte("]}")
	head := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(before)+len(prompt)+len(after))
	return c.writeAll(head, before, prompt, after)
}

// appendRow writes what the engine says about the i-th sampled token of a long answer.
func appendRow(b []byte, m mark, i int) []byte {
	const row = `{"token":" word","logprob":-0.000000000000,"bytes":[32,119,111,114,100],"top_logprobs":[]}`
	const value = len(`{"token":" word","logprob":`)
	at := len(b) + value
	b = append(b, row...)
	logprobOf(b[at:], m.number, i, sampledLen)
	return b
}

// longStream is longAnswer as a stream: all prompt ids in the first event, as vLLM sends them, and an event per sampled id.
func (c *engineConn) longStream(m mark) error {
	ids := c.engine.longIDs(m.size + sampledLen)
	first := []byte(`data: {"id":"chatcmpl-` + m.String() + `","object":"chat.completion.chunk","created":1760000000,"model":"` + Model +
		`","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[`)
	prompt, after := ids[:6*m.size-1], "]}\n\n"
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n" +
		strconv.FormatInt(int64(len(first)+len(prompt)+len(after)), 16) + "\r\n"
	if err := c.writeAll([]byte(head), first, prompt, []byte(after+"\r\n")); err != nil {
		return err
	}
	reply := longReply(m)
	var event []byte
	for i := range sampledLen {
		piece := reply[:min(len(reply), len(" word"))]
		if i == 0 {
			piece = reply[:markLen]
		}
		reply = reply[len(piece):]
		event = append(append(append(event[:0], eventStart+`{"index":0,"delta":{"content":"`...), piece...), `"},"logprobs":{"content":[`...)
		event = appendRow(event, m, i)
		at := 6 * (m.size + i)
		event = append(append(append(event, `]},"finish_reason":null,"token_ids":[`...), ids[at:at+5]...), "]}]}\n\n"...)
		framed, _ := chunked(event)
		if err := c.write(framed); err != nil {
			return err
		}
	}
	end, _ := chunked(fmt.Appendf(nil, eventStart+`{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null}]}`+"\n\n"+
		`data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1760000000,"model":"`+Model+
		`","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`+"\n\ndata: [DONE]\n\n", m.size, sampledLen, m.size+sampledLen))
	return c.write(append(end, "0\r\n\r\n"...))
}

// longIDs returns at least n ids of the long conversation.
func (e *engine) longIDs(n int) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := len(e.long) / 6; i < n; i++ {
		e.long = append(strconv.AppendInt(e.long, int64(longID(i)), 10), ',')
	}
	return e.long[:6*n]
}
