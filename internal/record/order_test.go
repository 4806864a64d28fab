package record

import "testing"

func TestPrecedence(t *testing.T) {
	// SPEC 3: cancelled, client_gone, upstream_error, aborted, filtered, incomplete_capture, length, complete.
	order := []Outcome{Cancelled, ClientGone, UpstreamError, Aborted, Filtered, IncompleteCapture, Length, Complete}
	for i, first := range order {
		for _, later := range order[i:] {
			if got := first.Wins(later); got != first {
				t.Errorf("%s against %s: got %s", first, later, got)
			}
			if got := later.Wins(first); got != first {
				t.Errorf("%s against %s: got %s", later, first, got)
			}
		}
	}
}
