package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"captureproxy/proxy/events"
)

const (
	// keepAlive is the longest silence of an event stream: proxies between here and there cut connections that are silent.
	keepAlive = 15 * time.Second
	// mustRead is how long a follower may take to read what was written.
	mustRead = 30 * time.Second
)

// streamEvents follows what happens to sessions, as server-sent events, until the caller hangs up. One who reads too
// slowly is cut off; he may come back with the last id he saw.
func (a *API) streamEvents(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "session", "group", "run")
	if err != nil {
		return err
	}
	filter := events.Filter{Session: q.Get("session"), Group: q.Get("group"), Run: q.Get("run")}
	follower := a.Sessions.Events().Follow(events.ParseID(r.Header.Get("Last-Event-ID")))
	defer follower.Close()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	out := eventWriter{w: w, control: http.NewResponseController(w)}
	out.text = append(out.text, "retry: 1000\n: follow\n\n"...)
	buf := make([]events.Event, 64)
	for {
		if err := out.flush(); err != nil {
			return nil // the caller hung up, or does not read
		}
		n, err := nextEvents(r.Context(), follower, buf)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && r.Context().Err() == nil:
			out.text = append(out.text, ": still here\n\n"...)
		case err != nil: // too slow, hung up, or the proxy shuts down: the stream ends
			return nil
		}
		for i := range buf[:n] {
			if filter.Match(&buf[i]) {
				out.add(&buf[i])
			}
		}
	}
}

func nextEvents(ctx context.Context, f *events.Follower, buf []events.Event) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, keepAlive)
	defer cancel()
	return f.Next(ctx, buf)
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	text    []byte
}

func (o *eventWriter) add(e *events.Event) {
	data, err := json.Marshal(e)
	if err != nil { // a reward that is no number; records hold none
		return
	}
	if e.ID != (events.ID{}) {
		o.text = append(append(append(o.text, "id: "...), e.ID.String()...), '\n')
	}
	o.text = append(append(append(o.text, "event: "...), e.Kind...), '\n')
	o.text = append(append(append(o.text, "data: "...), data...), '\n', '\n')
}

func (o *eventWriter) flush() error {
	if len(o.text) == 0 {
		return nil
	}
	if err := o.control.SetWriteDeadline(time.Now().Add(mustRead)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_, err := o.w.Write(o.text)
	o.text = o.text[:0]
	if err != nil {
		return err
	}
	return o.control.Flush()
}
