// Package chaos holds a test: a proxy over TCP between an engine that misbehaves and clients that do. After every call it
// asks whether the call is in the log exactly once, holds nothing of another call, and, where it counts as whole, what the
// engine truly sampled; at the end, whether all goroutines and file descriptors are given back.
//
// The client_ files look from the other side: raw connections to the server that faces clients for real, whose bytes are wrong,
// too many, too slow or cut, and a tap before the engine that keeps whatever reaches it.
//
//	make chaos    many rounds, and the table of how often each fault struck
package chaos
