// Package format writes rollout documents in the form that a trainer reads.
//
//	e, err := format.New("verl", format.Output{Stream: file}, format.Options{})
//	for each document {
//		err = e.Add("where it came from", rollout)
//	}
//	summary, err := e.Close()
//
// [Export] does this for a [Source] of documents, with a first pass over them where a format or an advantage needs to
// know the groups. Memory holds one session at a time; atropos, whose unit is the group, holds one group.
//
// Every form obeys the same rules, which stand in exporter.go:
//
//   - A document that contradicts itself is refused: [DamagedError] names it.
//   - A session whose gate is shut, that is an eval or that still runs is left out, and the [Summary] says so. A form
//     that must have a reward leaves out what nobody scored: a missing reward is never 0.
//   - Each sampled token is trained once over the whole export, unless [Options.Shared] is every.
//   - Advantages are taken over the sessions of a group, never over rows: a session with three rows does not count
//     three times.
//
// The line from a document to a file is Rollout → session (rows with their final masks, turns with their ids) →
// writer. Each form is one writer, in a file of its own, with the trainer's own names.
package format
