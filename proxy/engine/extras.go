package engine

import (
	"slices"

	"captureproxy/internal/jsonscan"
)

// source is the field from which a choice's sampled ids come. Engines that give them twice must agree with themselves.
type source uint8

const (
	fromNowhere  source = iota
	fromTokenIDs        // choices[].token_ids: vLLM, Fireworks, SGLang
	fromResponse        // choices[].response_token_ids: SGLang, whole
	fromSglext          // sglext.output_ids: SGLang, streamed
	fromMeta            // choices[].meta_info.output_token_logprobs: older SGLang, whole
	fromVerbose         // __verbose.tokens: llama.cpp, whole
	fromRows            // choices[].logprobs.token_ids: Together
)

// sampledFrom reads sampled ids that stand in a further place and reports whether there were any. The place that came
// first counts; a later one is compared with it.
func (c *Choice) sampledFrom(cur *jsonscan.Cursor, from source) bool {
	if c.idsFrom == from || c.idsFrom == fromNowhere {
		before := len(c.SampledIDs)
		had := c.HasIDs
		array := c.sampled(cur)
		if array && len(c.SampledIDs) == before && !had && from != fromTokenIDs { // an empty list of an engine that has ids elsewhere
			c.HasIDs = had
			return false
		}
		if len(c.SampledIDs) > before {
			c.idsFrom = from
		}
		return array
	}
	ids, array, _ := cur.AppendInts(nil)
	if array && len(ids) > 0 {
		c.again(ids)
	}
	return array && len(ids) > 0
}

// again compares ids with those from another place.
func (c *Choice) again(ids []int32) {
	if !c.voidSampled && !slices.Equal(ids, c.SampledIDs) {
		c.remark("capture_conflict", "the engine gave two different lists of sampled ids")
	}
}

// sglext reads SGLang's extension, {"input_ids": […], "output_ids": [[choice 0], …]}, which comes once per answer (BC11), and
// reports whether it held ids, and whether anything else that the harness could miss.
func (a *Answer) sglext(cur *jsonscan.Cursor) (ids, rest bool) {
	if cur.Peek() != '{' {
		cur.Skip()
		return false, false
	}
	for o := cur.Object(); o.Next(); {
		switch string(o.Key) {
		case "input_ids":
			ids = a.prompt(cur) || ids
		case "output_ids":
			index := int64(0)
			for lists := cur.Array(); lists.Next(); index++ {
				if c := a.choice(index); c != nil {
					ids = c.sampledFrom(cur, fromSglext) || ids
				}
			}
		default:
			if rest = !cur.Null() || rest; cur.Pos() == o.Value {
				cur.Skip()
			}
		}
	}
	return ids, rest
}

// withoutIDs notes the removal of the ids in an sglext that holds other things too. cur stands on it.
func (p *pass) withoutIDs(cur jsonscan.Cursor) {
	eraser := jsonscan.NewEraser()
	for o := cur.Object(); o.Next(); {
		drop := string(o.Key) == "input_ids" || string(o.Key) == "output_ids"
		if cur.Skip(); drop {
			p.out = eraser.Drop(p.out, o.Comma, o.KeyStart, cur.Pos())
		} else {
			p.out = eraser.Keep(p.out, o.KeyStart)
		}
	}
	p.out = eraser.Close(p.out)
}

// verbose reads llama.cpp's own account of an answer, of which the ids are what no other field tells, and reports whether
// it held any. It describes one choice.
func (a *Answer) verbose(cur *jsonscan.Cursor) bool {
	if cur.Peek() != '{' {
		cur.Skip()
		return false
	}
	c, found := a.choice(indexAhead(*cur)), false
	for o := cur.Object(); o.Next(); {
		if string(o.Key) == "tokens" && c != nil {
			found = c.sampledFrom(cur, fromVerbose)
		} else {
			cur.Skip()
		}
	}
	return found
}

// meta reads SGLang's meta_info, {"output_token_logprobs": [[logprob, id, text], …]}, ids beside their logprobs, and reports
// whether it held any.
func (c *Choice) meta(cur *jsonscan.Cursor) bool {
	if cur.Peek() != '{' {
		cur.Skip()
		return false
	}
	var ids []int32
	var logprobs []float64
	whole := true
	for o := cur.Object(); o.Next(); {
		if string(o.Key) != "output_token_logprobs" || cur.Peek() != '[' {
			cur.Skip()
			continue
		}
		for rows := cur.Array(); rows.Next(); {
			value, id := notANumber, int64(-1)
			at := 0
			for row := cur.Array(); row.Next(); at++ {
				switch at {
				case 0:
					if v, ok := cur.Float(); ok {
						value = v
					}
				case 1:
					if n, ok := cur.Int(); ok {
						id = n
					}
				default:
					cur.Skip()
				}
			}
			whole = whole && id >= 0 && id <= 1<<31-1
			ids, logprobs = append(ids, int32(id)), append(logprobs, value)
		}
	}
	switch {
	case len(ids) == 0:
		return false
	case !whole:
		c.voidSampled = true
		c.remark("invalid_token_id", notWhole)
		c.SampledIDs = nil
	case c.idsFrom != fromNowhere:
		c.again(ids)
	case !c.voidSampled:
		c.SampledIDs, c.idsFrom = ids, fromMeta
	}
	c.HasIDs, c.started, c.metaLogprobs = true, true, logprobs
	return true
}

// settleMeta takes the logprobs that stand beside their ids where the rows lost some.
func (c *Choice) settleMeta() {
	if len(c.Logprobs) != len(c.metaLogprobs) {
		c.Logprobs, c.spelled = c.metaLogprobs, nil
	}
	c.HasLogprobs, c.metaLogprobs = true, nil
}
