// Package storetest is the conformance suite of store.Store: what the interface promises, as tests that every
// implementation passes.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { … })
//	}
package storetest

import (
	"testing"

	"captureproxy/store"
)

// Run runs the suite. open returns an empty store; the test closes it.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	tests := []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"CreateAndGet", testCreateAndGet},
		{"CreateTwice", testCreateTwice},
		{"Put", testPut},
		{"NotFound", testNotFound},
		{"SessionIsACopy", testSessionIsACopy},
		{"AnySession", testAnySession},
		{"Filters", testFilters},
		{"Paging", testPaging},
		{"PagingWhileChanging", testPagingWhileChanging},
		{"BadCursor", testBadCursor},
		{"Append", testAppend},
		{"AppendTwice", testAppendTwice},
		{"AppendOutOfOrder", testAppendOutOfOrder},
		{"AppendRefused", testAppendRefused},
		{"AnyCall", testAnyCall},
		{"Conversation", testConversation},
		{"SamePieceManyPlaces", testSamePieceManyPlaces},
		{"ChangingBeginnings", testChangingBeginnings},
		{"Delete", testDelete},
		{"DeleteThenCreate", testDeleteThenCreate},
		{"Contexts", testContexts},
		{"Concurrency", testConcurrency},
		{"ConcurrentCreate", testConcurrentCreate},
		{"Close", testClose},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			test.test(t, s)
		})
	}
}
