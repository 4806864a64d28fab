// Package graph links the model calls of one session into a forest and flattens its paths into token sequences.
//
// A [Turn] is the narrow view of one answer: the ids the engine was prompted with, the ids it sampled, their
// logprobs, and the messages around them. [Link] finds each turn's parent, the turn whose prompt and sampled ids are
// the longest exact prefix of its own prompt:
//
//	a: prompt 1 2      sampled 3 4
//	b: prompt 1 2 3 4 9  sampled 5        parent a; 9 is what the harness put in between
//	c: prompt 7        sampled 8          extends nothing: a root
//
// A turn without prompt ids is linked by its messages in the same way. Nothing is fuzzy, and nothing depends on the
// order of arrival: arrival breaks ties and orders lists.
//
// Prefixes are found in one radix tree that holds every prompt and every end. Each token of the input is compared
// once on the way down, so linking costs the sum of the prompts, and the tree itself holds slices of the input. There
// is no hash that could collide.
//
// [Graph.Sequences] gives one row per leaf; [Share] then decides how a turn that lies on several rows is masked.
//
// The package is pure: no I/O, no clock.
package graph
