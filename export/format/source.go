package format

import (
	"context"
	"slices"

	"captureproxy/export"
)

// Source gives documents one at a time, by number, so that only one need be in memory. A document may be asked for
// twice.
type Source interface {
	Len() int
	// Name says where a document comes from, for errors.
	Name(i int) string
	Rollout(ctx context.Context, i int) (*export.Rollout, error)
}

// Export writes all documents of a source, in their order; the sessions of a group follow each other where the form
// asks for it. It goes over the documents twice where something must be known of all of them first: an advantage within
// the group, or which sessions belong together. Then nothing is written when one of them is damaged. progress, if not
// nil, is told how many of how many steps are done.
func Export(ctx context.Context, src Source, name string, out Output, o Options, progress func(done, total int)) (Summary, error) {
	f, err := find(name)
	if err != nil {
		return Summary{}, err
	}
	run := &pass{src: src, progress: progress, total: src.Len()}
	order := inOrder(src.Len())
	incomplete := 0
	if o.Advantage == AdvantageGroup || f.together {
		run.total *= 2
		if o.Groups, order, err = survey(ctx, run, f.together); err != nil {
			return Summary{}, err
		}
		incomplete = o.Groups.incomplete()
	}
	e, err := New(name, out, o)
	if err != nil {
		return Summary{}, err
	}
	if o.Advantage == AdvantageGroup && incomplete > 0 {
		e.summary.note("groups with fewer scored, trainable sessions here than were planned: %d; their advantages are among those that are here", incomplete)
	}
	if err := run.each(ctx, order, func(i int, r *export.Rollout) error { return e.Add(src.Name(i), r) }); err != nil {
		return e.summary, err
	}
	return e.Close()
}

// survey looks at every document once. With together it also says in which order the sessions of each group follow each
// other.
func survey(ctx context.Context, run *pass, together bool) (*Groups, []int, error) {
	groups := NewGroups()
	rank := map[string]int{}
	ranks := make([]int, run.src.Len())
	order := inOrder(run.src.Len())
	err := run.each(ctx, order, func(i int, r *export.Rollout) error {
		id := groupID(r)
		if _, have := rank[id]; !have {
			rank[id] = len(rank)
		}
		ranks[i] = rank[id]
		groups.Add(r)
		return refuseDamaged(run.src.Name(i), r)
	})
	if together {
		slices.SortStableFunc(order, func(a, b int) int { return ranks[a] - ranks[b] })
	}
	return groups, order, err
}

func inOrder(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// pass goes over documents and says how far it is.
type pass struct {
	src         Source
	progress    func(done, total int)
	done, total int
}

func (p *pass) each(ctx context.Context, order []int, f func(i int, r *export.Rollout) error) error {
	for _, i := range order {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := p.src.Rollout(ctx, i)
		if err != nil {
			return err
		}
		if err := f(i, r); err != nil {
			return err
		}
		p.done++
		if p.progress != nil {
			p.progress(p.done, p.total)
		}
	}
	return nil
}
