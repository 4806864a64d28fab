package export

import (
	"encoding/json"
	"testing"

	"captureproxy/internal/record"
)

func v(n int64) *int64 { return &n }

func TestPolicy(t *testing.T) {
	train := `{"kind":"train","id":"r","metadata":{"kind":"train","step":6}}`
	online := `{"kind":"train","id":"r","metadata":{"step":6,"kind":"eval"}}`
	for _, tc := range []struct {
		name             string
		run              string
		dispatch, end    []*int64
		frozen           bool
		start, last      *int64
		drift, offPolicy *int64
		wantRun          string
	}{
		{"training", train, []*int64{v(5), v(4)}, []*int64{v(5), v(7)}, false, v(4), v(7), v(3), v(1),
			`{"kind":"train","id":"r","metadata":{"kind":"train","step":6,"policy":{"start":4,"end":7},"drift":3,"off_policy_steps":1}}`},
		{"a training run's eval", online, []*int64{v(5)}, []*int64{v(8)}, false, v(5), v(8), v(3), v(3),
			`{"kind":"train","id":"r","metadata":{"step":6,"kind":"eval","policy":{"start":5,"end":8},"drift":3,"off_policy_steps":3}}`},
		{"standalone eval", `{"kind":"eval","id":"r"}`, []*int64{v(0)}, []*int64{v(0)}, false, v(0), v(0), v(0), v(0), `{"kind":"eval","id":"r"}`},
		{"no run", ``, []*int64{v(2)}, []*int64{v(3)}, false, v(2), v(3), v(1), nil, ``},
		{"only dispatched", train, []*int64{v(2)}, []*int64{nil}, false, v(2), nil, nil, v(3),
			`{"kind":"train","id":"r","metadata":{"kind":"train","step":6,"policy":{"start":2,"end":null},"drift":null,"off_policy_steps":3}}`},
		{"frozen", train, []*int64{v(5)}, []*int64{v(5)}, true, nil, nil, nil, nil,
			`{"kind":"train","id":"r","metadata":{"kind":"train","step":6,"policy":null,"drift":null,"off_policy_steps":null}}`},
		{"no version given", train, []*int64{nil}, []*int64{nil}, false, nil, nil, nil, nil,
			`{"kind":"train","id":"r","metadata":{"kind":"train","step":6,"policy":null,"drift":null,"off_policy_steps":null}}`},
	} {
		sess := session()
		sess.Spec.Frozen, sess.Spec.Run = tc.frozen, json.RawMessage(tc.run)
		var calls []*record.Call
		for i := range tc.dispatch {
			c := call(i+1, []int32{int32(i)}, []int32{9}, -1)
			c.Policy = record.CallPolicy{Dispatch: tc.dispatch[i], End: tc.end[i]}
			calls = append(calls, c)
		}
		r := Build(sess, calls, Options{})
		sane(t, r)
		same(t, tc.name+": run", string(r.Run), tc.wantRun)
		if tc.start == nil && tc.last == nil {
			if r.Policy != nil {
				t.Errorf("%s: policy %+v, want null", tc.name, r.Policy)
			}
			continue
		}
		same(t, tc.name, r.Policy, &Policy{Start: tc.start, End: tc.last, Drift: tc.drift, OffPolicySteps: tc.offPolicy})
		if string(sess.Spec.Run) != tc.run {
			t.Errorf("%s: the session's own run was written to", tc.name)
		}
	}
}
