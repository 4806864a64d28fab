// Package continuity finds out which earlier turn of a session a request carries on, so that the engine can be given that
// turn's own token ids for the past instead of messages that it would render anew, and otherwise than they were sampled.
//
//	turn := index.Find(request).Turn    // u, the turn whose messages and answer begin the request's
//	prompt = prompt(u) + sampled(u) + [end marker, when u was cut before it] + the engine's rendering of what is new
//
// An [Index] knows a session's turns as a tree of messages. Two messages are the same one when their role, their text up
// to surrounding space, and their tool calls (ids, names, arguments as parsed JSON) are; an answer's reasoning comes back
// equal or not at all. The tools and the template's arguments must be the same, byte for byte. What follows the answer of u
// is new: messages of tools, users and the system only. Anything else is not bridged, and has a [Reason].
//
// Ids are kept as differences: a turn holds what it has beyond the turn that it carries on, so a session takes memory for
// its distinct tokens and not for turns × context.
//
// Nothing here talks to anybody: requests and recorded calls in, matches out. An Index is safe for concurrent use.
package continuity
