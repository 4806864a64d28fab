package session

import (
	"encoding/json"
	"time"

	"captureproxy/proxy/events"
	"captureproxy/store"
)

// outbox holds events on their way to the other proxies. Nobody waits for it: what it cannot hold is missing, and it is
// told that something is.
type outbox struct {
	waiting chan events.Event
	lost    chan struct{} // room for one
	call    chan struct{} // room for one: somebody follows here
}

func newOutbox() outbox {
	return outbox{make(chan events.Event, 4096), make(chan struct{}, 1), make(chan struct{}, 1)}
}

func (o outbox) put(e events.Event) {
	select {
	case o.waiting <- e:
	default:
		signal(o.lost)
	}
}

func (o outbox) followed() { signal(o.call) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has been given already
	}
}

const (
	// maxText keeps a notice with events within store.MaxNotice, however much its text grows in being quoted.
	maxText = store.MaxNotice / 2
	// maxError is how much of an error's text goes with an event.
	maxError = 300
)

// sent is an event as proxies send it to each other.
type sent struct {
	ID string `json:"id"`
	events.Event
}

// sendEvents sends what is in the outbox, as many events at a time as there are.
func (c *cluster) sendEvents() {
	for {
		var list []json.RawMessage
		size := 0
		select {
		case <-c.work.Done():
			return
		case <-c.outbox.call:
			c.tell(store.Notice{Kind: store.NoticeFollowed})
			continue
		case <-c.outbox.lost:
			c.tellEvents(append(list, encode(events.Event{Kind: events.Gap, Time: time.Now()})))
			continue
		case e := <-c.outbox.waiting:
			list = append(list, encode(e))
			size = len(list[0])
		}
		for more := true; more; {
			select {
			case e := <-c.outbox.waiting:
				text := encode(e)
				if size+len(text) > maxText {
					c.tellEvents(list)
					list, size = nil, 0
				}
				list, size = append(list, text), size+len(text)+1
			default:
				more = false
			}
		}
		c.tellEvents(list)
	}
}

// encode lays out an event. One that is too long for a notice, because its labels are, is a gap.
func encode(e events.Event) json.RawMessage {
	if len(e.Error) > maxError {
		e.Error = e.Error[:maxError] + "…"
	}
	text, err := json.Marshal(sent{e.ID.String(), e})
	if err != nil || len(text) > maxText {
		text, _ = json.Marshal(sent{e.ID.String(), events.Event{Kind: events.Gap, ID: e.ID, Time: e.Time}}) //nolint:errcheck // strings and a time
	}
	return text
}

func (c *cluster) tellEvents(list []json.RawMessage) {
	text, err := json.Marshal(list)
	if err != nil || !c.tell(store.Notice{Kind: store.NoticeEvents, Text: string(text)}) {
		signal(c.outbox.lost)
	}
}

// tell sends a notice; false when the store did not take it.
func (c *cluster) tell(n store.Notice) bool {
	err := c.Tell(c.work, n)
	return err == nil
}

// deliver shows events that some proxy sent.
func (c *cluster) deliver(text string) {
	if !c.registry.events.Awake() {
		return
	}
	var list []sent
	if json.Unmarshal([]byte(text), &list) != nil {
		return // of a proxy of another version
	}
	for _, s := range list {
		s.Event.ID = events.ParseID(s.ID)
		c.registry.events.Deliver(s.Event)
	}
}
