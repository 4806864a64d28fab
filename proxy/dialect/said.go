package dialect

// Said is what an engine has said so far in answer to a translated request, whole fields that only ever grow. A Stream
// turns what is new in it into its dialect's events.
type Said struct {
	Text      []byte
	Reasoning []byte
	Refusal   []byte
	Calls     []SaidCall
	// Finish is the finish reason in OpenAI's words, "" while the answer goes on; Stop is the stop string that was met.
	Finish string
	Stop   string
	Usage  SaidUsage
}

// SaidCall is a tool call. Its id and name are complete when it first appears; its arguments grow, byte for byte as the
// engine wrote them: they are never parsed and written anew.
type SaidCall struct {
	ID, Name  string
	Arguments []byte
}

// SaidUsage is the engine's count; Known says that there is one.
type SaidUsage struct {
	Known                                bool
	Prompt, Completion, Cached, Thinking int64
}

// Stream writes an answer as a dialect's event sequence, live. Its methods append to dst and return it; what they append
// are whole events. They are called in this order: Advance any number of times, then End or Fail.
type Stream interface {
	// Advance writes what is new since the last call. The first call opens the answer.
	Advance(dst []byte, s *Said) []byte
	// End writes the rest. terminal is the event that ends the answer, which is held until the turn is durable.
	End(dst []byte, s *Said) (rest, terminal []byte)
	// Fail writes the dialect's error event, for an engine that failed in mid-stream.
	Fail(dst []byte, status int, text string) []byte
}

// Answer says how an answer is named towards the harness.
type Answer struct {
	ID      string // unique, without the dialect's prefix
	Created int64  // Unix seconds
}
