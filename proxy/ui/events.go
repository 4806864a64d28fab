package ui

import (
	"context"
	"errors"
	"net/http"
	"time"

	"captureproxy/proxy/control"
	"captureproxy/proxy/events"
)

const (
	// calm is the shortest time between two changes that a page is told of: it asks for all that is new each time.
	calm = 250 * time.Millisecond
	// keepAlive is the longest silence of the stream.
	keepAlive = 15 * time.Second
)

// follow tells a page that something changed, as server-sent events. What changed it then asks for itself.
func (u *UI) follow(w http.ResponseWriter, r *http.Request) error {
	if u.events == nil {
		return &control.Error{Status: http.StatusNotFound, Message: "these are documents on disk: they do not change"}
	}
	filter := events.Filter{Session: r.URL.Query().Get("session")}
	follower := u.events.Follow(events.ID{})
	defer follower.Close()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	// A page that connects, or connects again, may have missed something.
	say := "retry: 2000\n" + change
	buf := make([]events.Event, 1024)
	for {
		if _, err := w.Write([]byte(say)); err != nil {
			return nil // the page is closed
		}
		if err := out.Flush(); err != nil {
			return nil
		}
		if !pause(r.Context(), calm) {
			return nil
		}
		switch err := awaitChange(r.Context(), follower, filter, buf); {
		case err == nil:
			say = change
		case errors.Is(err, context.DeadlineExceeded) && r.Context().Err() == nil:
			say = ": still here\n\n"
		default: // closed, too slow, or the proxy shuts down: the browser comes back
			return nil
		}
	}
}

const change = "event: change\ndata: \n\n"

// awaitChange waits for an event of the session.
func awaitChange(ctx context.Context, f *events.Follower, filter events.Filter, buf []events.Event) error {
	ctx, cancel := context.WithTimeout(ctx, keepAlive)
	defer cancel()
	for {
		n, err := f.Next(ctx, buf)
		if err != nil {
			return err
		}
		for i := range buf[:n] {
			if filter.Match(&buf[i]) || buf[i].Kind == events.Gap {
				return nil
			}
		}
	}
}

// pause waits, and reports whether the page is still there.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
