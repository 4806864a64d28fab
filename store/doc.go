// Package store keeps sessions and their calls: the turn log and the run index.
//
// [Store] is what the rest of the program sees. [Log] is the embedded implementation: a directory that holds one
// append-only log, nothing to install. Everything else (the list of sessions, where each call lies, what was stored
// before) is an index in memory that Open rebuilds from the log, so only the log is ever flushed.
//
// # The life of a write
//
// Append hashes and encodes what it can in the caller's goroutine and queues the rest. One writer goroutine takes
// everything that is queued, lays it out as one batch, writes it with one pwrite, flushes it with one fdatasync,
// publishes it to the index and acknowledges all of it: concurrent turns share a flush. Space is filled with zeros ahead
// of the writes, so that a flush carries data only and no change to the file's size or extents.
//
// A batch that cannot be written is tried once more in a new segment; if that fails too its writers get the error,
// Healthy says why, and the next batch tries again. A segment in which a write or a flush failed is never written again:
// after a failed flush nobody knows what the kernel kept.
//
// # Files
//
//	data/
//	  LOCK            flock'ed by the process that has the store open
//	  00000001.log    segments, written one after the other, 64 MiB each unless a frame is larger
//	  00000002.log
//	  policy.json   which weights are live, replaced as a whole; absent until somebody says
//
// A segment is a header followed by frames, back to back, then zeros. Integers are little-endian.
//
//	segment header, 40 bytes
//	0       6   7   8               16              24              32       36      40
//	+-------+---+---+---------------+---------------+---------------+--------+--------+
//	|CAPLOG |ver| 0 | segment       | salt          | previous      | prev.  | CRC32C |
//	|       |   |   | number        | (random)      | segment       | end    |        |
//	+-------+---+---+---------------+---------------+---------------+--------+--------+
//
//	"previous segment" and "prev. end" seal the segment before this one: what stands there behind that offset is the
//	remains of a batch that failed, and is not read.
//
//	frame, 28 bytes and the payload
//	0        4   5       8        12       16        20        24        28
//	+--------+---+-------+--------+--------+---------+---------+---------+-----------
//	| length |typ| 0     | session| seq    | durable | payload | header  | payload …
//	|        |   |       | number |        |         | CRC32C  | CRC32C  |
//	+--------+---+-------+--------+--------+---------+---------+---------+-----------
//
// The header's checksum covers the segment's salt and the frame's own offset beside the header, so bytes that merely
// look like a frame (a request body may hold anything) or stand at another place are never taken for one. That makes it
// safe to search for the next frame behind a damaged one. "durable" is the offset up to which the segment was known to
// be on disk when the frame's batch was laid out: a bad frame before the "durable" of a later frame was acknowledged
// once and is damage; a bad frame that no later frame vouches for is the torn end of a batch that never was
// acknowledged, and is cut off.
//
// # Frames
//
// Sessions are numbered in the log; an id that is deleted and used again gets another number.
//
//	type 1  session   the session's record; seq counts its versions, the highest is valid
//	type 2  call      one call; seq counts the session's calls from 0 without a gap, so that a lost one is noticed
//	type 3  delete    the session is gone
//	type 4  probe     nothing; written to find out whether a failed disk works again
//
//	session payload:  number of calls so far, record
//	call payload:     call number, dictionary, first block, first node, first piece, record,
//	                  body, messages, tools, choices
//	  dictionary:     its number, and 2^32 more in format 2: bodies and messages are turned then
//	  record:         length, JSON; number of raws, each a length + 1 and bytes (0: nil)
//	  body, messages, tools: a list
//	  choice:         prompt; sampled ids; logprobs; message
//
// All numbers in payloads are uvarints. Raw JSON fields stand beside the record rather than in it, because encoding/json
// would respell them.
//
// # What is stored once
//
// A session sends the same messages and prompt prefixes again with every call. Both are kept as paths in a tree:
//
//	prompt   a path of blocks of 128 ids, each naming its parent, and a tail of fewer
//	list     a path of nodes, each naming its parent and a piece of bytes; pieces are kept once whatever list they are in
//
// A path does not begin with the first three items of a body or the first of the messages but ends with them, in that order:
// what changes from call to call stands at the beginning (parameters before the messages, a system prompt with the time in
// it), and would make every node behind it a new one. A body of n items is turned by 3 modulo n. Format 1 did not turn.
//
// A call then names the deepest block or node that is known already and brings the rest, which become new blocks, nodes
// and pieces, numbered on from the call's "first" numbers. Known ones are found by a 128-bit hash keyed with secrets of
// this process; the hashes are never stored. The tables that map hashes to numbers, the dictionary, live only as long as
// the session is running and its writes succeed: afterwards, and after a restart, the next call starts a new dictionary
// (named by that call's seq) and brings everything again, once. So nothing needs to be read to go on writing.
//
//	prompt encoding:  0 nil | 1 as the choice before | 2 no parent | parent block + 3;  then number of ids, ids
//	list encoding:    0 nil | 1 no parent | parent node + 2;  then number of items, each:
//	                  0, length, bytes (a piece of its own when 32 bytes or longer) | piece + 1
//	ids encoding:     0 nil | number + 1, ids
//	logprobs:         0 nil | 1 + number, width (4 or 8), IEEE 754 bits; 4 when each value is a float32 exactly
//	message:          0 nil | 1, length, bytes | piece + 2
//
// # Space
//
// A segment whose frames are all dead (sessions deleted, records replaced) is removed. A deletion is kept until no other
// segment holds frames of its session. Sealed segments that are mostly dead are compacted: their live frames are written
// again at the end of the log, session and seq unchanged.
package store
