package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"captureproxy/internal/record"
	"captureproxy/store"
)

const (
	// A batch has at most so many calls, and bytes unless a single call has more.
	batchCalls = 256
	batchBytes = 8 << 20
	// batchWithin is how long a batch may take before it is sent again.
	batchWithin = 30 * time.Second
	// forgetAfter is how long the dictionary of a session is kept that has no calls.
	forgetAfter = 10 * time.Minute
)

// Append implements Store.
func (s *Store) Append(c *record.Call) <-chan error {
	done := make(chan error, 1)
	if c.Number < 1 || c.Number > math.MaxInt32 {
		done <- fmt.Errorf("postgres: call number %d: calls are numbered from 1", c.Number)
		return done
	}
	prepared, err := s.encoder.Prepare(c)
	if err != nil {
		done <- err
		return done
	}
	w := &waiting{
		session: c.Session, instance: c.Instance, number: c.Number, hash: c.BodyHash, node: c.Outcome.IsNode(), outcome: string(c.Outcome),
		forwarded: c.Forwarded, prepared: prepared, size: prepared.Size(), done: []chan error{done},
	}
	if w.node {
		w.turns = len(c.Choices)
	} else {
		w.detail = c.Detail
	}
	if err := s.queue.put(w); err != nil {
		done <- err
	}
	return done
}

// writer stores calls. Its dictionaries belong to its one goroutine.
type writer struct {
	s     *Store
	dicts map[dictKey]*dict
	swept time.Time
}

// dictKey is a session.
type dictKey struct{ session, instance string }

// dict is a session's dictionary, and the place of its next payload.
type dict struct {
	*store.Dictionary
	id   uint32
	next int32
	used time.Time
}

func newWriter(s *Store) *writer {
	return &writer{s: s, dicts: map[dictKey]*dict{}, swept: time.Now()}
}

func (w *writer) run() {
	defer close(w.s.written)
	for {
		ops, open := w.s.queue.take()
		for len(ops) > 0 {
			n := batchOf(ops)
			w.store(merged(ops[:n], w.s.queue))
			ops = ops[n:]
		}
		if !open {
			return
		}
		w.sweep(time.Now())
	}
}

// batchOf says how many of ops, from the first, go together.
func batchOf(ops []*waiting) int {
	var bytes int64
	for n, o := range ops {
		if bytes += o.size; n == batchCalls || n > 0 && bytes > batchBytes {
			return n
		}
	}
	return len(ops)
}

// merged makes one of several appends of the same call, and orders the batch by session: so all proxies lock sessions in
// the same order.
func merged(ops []*waiting, q *queue) []*waiting {
	type id struct {
		session, instance string
		number            int
	}
	first := map[id]*waiting{}
	kept := make([]*waiting, 0, len(ops))
	for _, o := range ops {
		key := id{o.session, o.instance, o.number}
		if same := first[key]; same != nil {
			same.done = append(same.done, o.done...)
			q.answered(o)
			continue
		}
		first[key] = o
		kept = append(kept, o)
	}
	slices.SortStableFunc(kept, func(a, b *waiting) int { return strings.Compare(a.session, b.session) })
	return kept
}

// store stores a batch and answers its callers, however long that takes.
func (w *writer) store(ops []*waiting) {
	for len(ops) > 0 {
		rows, ops2 := w.encode(ops)
		ops = ops2
		results, err := w.send(rows)
		switch {
		case err == nil:
			for i, o := range ops {
				w.answer(o, w.verdict(o, results[i]))
			}
			return
		case errorCode(err) == takenCode:
			// Somebody has stored a call of this number before, so this append has no effect. What the others of the batch
			// refer to may be in it.
			i := takenRow(err)
			if i < 0 || i >= len(ops) {
				w.fail(ops, err)
				return
			}
			w.forget(ops)
			w.answer(ops[i], nil)
			ops = slices.Delete(ops, i, i+1)
		case len(ops) == 1 || errors.Is(err, store.ErrClosed):
			w.fail(ops, err)
			return
		default: // one of them is to blame
			w.forget(ops)
			for _, o := range ops {
				w.store([]*waiting{o})
			}
			return
		}
	}
}

// takenCode is the error of the function append for a number that another payload has.
const takenCode = "CP001"

// takenRow is which row of the batch it was.
func takenRow(err error) int {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return -1
	}
	n, err := strconv.Atoi(e.Detail)
	if err != nil {
		return -1
	}
	return n - 1
}

func (w *writer) fail(ops []*waiting, err error) {
	w.forget(ops)
	for _, o := range ops {
		w.answer(o, fmt.Errorf("postgres: storing call %d: %w", o.number, err))
	}
}

func (w *writer) answer(o *waiting, err error) {
	w.s.queue.answered(o)
	for _, done := range o.done {
		done <- err
	}
}

// verdict is what the result of the function append means for one call.
func (w *writer) verdict(o *waiting, result int32) error {
	if result != 0 {
		return nil
	}
	w.forget([]*waiting{o})
	return fmt.Errorf("postgres: the session of call %d: %w", o.number, store.ErrNotFound)
}

// rows are a batch as the function append takes it, by columns.
type rows struct {
	sessions, instances []string
	numbers             []int32
	dicts               []int64
	seqs                []int32
	hashes              []string
	nodes               []bool
	outcomes            []string
	turns               []int32
	forwarded           []bool
	details             []string
	payloads            [][]byte
}

// encode lays out a batch. A call that is too large is answered, and left out.
func (w *writer) encode(ops []*waiting) (*rows, []*waiting) {
	r := &rows{}
	kept := make([]*waiting, 0, len(ops))
	for _, o := range ops {
		d := w.dictionary(o)
		payload, err := d.Payload(o.prepared)
		if err != nil { // the dictionary has learned what is not stored
			w.fail([]*waiting{o}, err)
			continue
		}
		r.sessions, r.instances = append(r.sessions, text(o.session)), append(r.instances, text(o.instance))
		r.numbers, r.dicts, r.seqs = append(r.numbers, int32(o.number)), append(r.dicts, int64(d.id)), append(r.seqs, d.next)
		r.hashes, r.nodes, r.outcomes = append(r.hashes, text(o.hash)), append(r.nodes, o.node), append(r.outcomes, text(o.outcome))
		r.turns, r.forwarded = append(r.turns, int32(o.turns)), append(r.forwarded, o.forwarded)
		r.details, r.payloads = append(r.details, text(o.detail)), append(r.payloads, payload)
		d.next++
		kept = append(kept, o)
	}
	return r, kept
}

func (w *writer) dictionary(o *waiting) *dict {
	key := dictKey{o.session, o.instance}
	d := w.dicts[key]
	if d == nil {
		var b [4]byte
		rand.Read(b[:]) // never fails (Go 1.24)
		id := binary.LittleEndian.Uint32(b[:])
		d = &dict{Dictionary: store.NewDictionary(id), id: id}
		w.dicts[key] = d
	}
	d.used = time.Now()
	return d
}

// forget begins new dictionaries for the sessions of a batch that was not stored.
func (w *writer) forget(ops []*waiting) {
	for _, o := range ops {
		delete(w.dicts, dictKey{o.session, o.instance})
	}
}

// sweep drops the dictionaries of sessions that are quiet, or over.
func (w *writer) sweep(now time.Time) {
	if now.Sub(w.swept) < forgetAfter/10 {
		return
	}
	w.swept = now
	for key, d := range w.dicts {
		if now.Sub(d.used) > forgetAfter {
			delete(w.dicts, key)
		}
	}
}

// send stores a batch. While the database is away it is sent again, as it is: whatever became of it before, it is stored
// once.
func (w *writer) send(r *rows) ([]int32, error) {
	if len(r.sessions) == 0 {
		return nil, nil
	}
	pause := 20 * time.Millisecond
	for {
		w.s.health.sent(time.Now())
		results, err := w.sendOnce(r)
		if err == nil || !passes(err) {
			w.s.health.answered(nil)
			return results, err
		}
		w.s.health.answered(err)
		select {
		case <-w.s.giveUp:
			return nil, fmt.Errorf("%w: %w", store.ErrClosed, err)
		case <-time.After(pause):
		}
		pause = min(2*pause, 500*time.Millisecond)
	}
}

func (w *writer) sendOnce(r *rows) (results []int32, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), batchWithin)
	defer cancel()
	err = w.s.pool.QueryRow(ctx, `select capture_proxy.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`, w.s.name(),
		r.sessions, r.instances, r.numbers, r.dicts, r.seqs, r.hashes, r.nodes, r.outcomes, r.turns, r.forwarded, r.details, r.payloads).Scan(&results)
	if err == nil && len(results) != len(r.sessions) {
		err = &ownError{fmt.Errorf("%d results for %d calls", len(results), len(r.sessions))}
	}
	return results, err
}

// text makes any string one that the database takes and an index holds; different ones stay different.
func text(s string) string {
	if strings.ContainsAny(s, "\x00\\") {
		s = strings.NewReplacer(`\`, `\\`, "\x00", `\0`).Replace(s)
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
