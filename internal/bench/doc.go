// Package bench measures what the proxy costs: `capture-proxy bench`.
//
// Everything that is measured runs in a process of its own, started from one binary:
//
//	load generator ──────────────────────────► engine     direct: the ceiling
//	load generator ──► bare proxy ───────────► engine     httputil.ReverseProxy, records nothing
//	load generator ──► capture-proxy serve ──► engine     durable store in a temporary directory
//
// The load generator and the engine are lean: they write prepared bytes and read no more than they must, so that the
// ratios measure proxies. [Run] is the conductor: it starts the processes ([Host] says how), interleaves the runs, and
// kills the proxy at the end to look into its store, where every answered call must lie with its own content.
//
// Every request is unique. A mark in its text ([mark]) says which one it is and what it wants; the engine works the
// number into the prompt ids, the sampled ids, the logprobs and the text of the answer, so a record that holds parts of
// two calls gives itself away.
//
// [Grow] does something else with the same processes: it follows how cost grows with the number of streams, the turns of a
// session and the length of a prompt, holds every figure against the bytes that passed, and draws pictures of it.
//
// [Compare] puts the standard call through other proxies as well, which somebody else has started in front of the same engine.
//
// Files: wire.go has the bytes, engine.go, bare.go and load.go the three other processes, child.go starts them,
// standard.go, streams.go and long.go are the measurements, check.go reads the store, report.go prints. growth*.go and
// picture.go are how cost grows; peer*.go are other proxies.
package bench
