package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
)

// pageSize is how many sessions a page of the list shows.
const pageSize = 100

// indexPage lists sessions.
type indexPage struct {
	frame
	Filter   filter
	Statuses []string
	Sinces   []since
	List     *listing
	Health   *control.Health
	Policy   string
	Create   string // the command that makes a first session
	Files    bool   // documents on disk
}

type since struct{ Value, Name string }

// filter is what the list is narrowed to, as it stands in the address.
type filter struct {
	Status, Group, Run, Env, Since, After string
	Open                                  []string // groups that are unfolded
	Flat                                  bool     // groups are not folded at all
}

func filterOf(q url.Values) filter {
	return filter{
		Status: q.Get("status"), Group: strings.TrimSpace(q.Get("group")), Run: strings.TrimSpace(q.Get("run")), Env: strings.TrimSpace(q.Get("env")),
		Since: q.Get("since"), After: q.Get("after"), Open: q["open"], Flat: q.Get("flat") != "",
	}
}

func (f filter) query() string {
	q := url.Values{}
	for name, value := range map[string]string{"status": f.Status, "group": f.Group, "run": f.Run, "env": f.Env, "since": f.Since, "after": f.After} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Flat {
		q.Set("flat", "1")
	}
	for _, g := range f.Open {
		q.Add("open", g)
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// Any reports whether the list is narrowed at all.
func (f filter) Any() bool {
	return f.Status != "" || f.Group != "" || f.Run != "" || f.Env != "" || f.Since != "" || f.After != ""
}

func (f filter) options(now time.Time) (control.ListOptions, error) {
	o := control.ListOptions{Status: f.Status, Group: f.Group, Run: f.Run, Env: f.Env, After: f.After, Limit: pageSize}
	if f.Since != "" {
		d, err := time.ParseDuration(f.Since)
		if err != nil || d <= 0 {
			return o, &control.Error{Status: http.StatusBadRequest, Message: "since is a duration such as 24h"}
		}
		o.Since = now.Add(-d)
	}
	return o, nil
}

// listing is the part of the page that moves.
type listing struct {
	Entries []entry
	Next    string
	First   string // back to the newest, on later pages
	Damage  string
	Self    string // address of this part
	State   string // changes when it does
	CanEnd  bool
	Empty   string // what to say when there is nothing
}

// entry is a session, or a group of them.
type entry struct {
	Group   *groupEntry
	Session *sessionEntry
}

type groupEntry struct {
	ID, Href, Toggle string
	Open             bool
	Status           *control.GroupStatus
	Reward           string
	Pass             string
	Shown, Trainable string
	Newest           export.Time
	Running          int
}

type sessionEntry struct {
	control.Summary
	Key, Href   string
	In          bool // inside of an unfolded group
	RewardText  string
	EnvText     string
	RunText     string
	CloseHref   string
	CancelHref  string
	IsRunning   bool
	HarnessText string
}

func (u *UI) listing(ctx context.Context, f filter) (*listing, error) {
	o, err := f.options(u.now())
	if err != nil {
		return nil, err
	}
	page, err := u.source.List(ctx, o)
	if err != nil {
		return nil, err
	}
	l := &listing{Damage: page.Damage, CanEnd: u.actor != nil, Self: "/ui/list" + f.query()}
	if page.Next != "" {
		next := f
		next.After = page.Next
		l.Next = u.links.index() + next.query()
	}
	if f.After != "" {
		first := f
		first.After = ""
		l.First = u.links.index() + first.query()
	}
	byGroup := map[string]int{}
	for i := range page.Sessions {
		if g := page.Sessions[i].Group; g != nil {
			byGroup[g.ID]++
		}
	}
	placed := map[string]bool{}
	for i := range page.Sessions {
		s := &page.Sessions[i]
		if s.Group == nil || f.Flat || byGroup[s.Group.ID] < 2 {
			l.Entries = append(l.Entries, entry{Session: u.sessionEntry(s, false)})
			continue
		}
		if placed[s.Group.ID] {
			continue
		}
		placed[s.Group.ID] = true
		group, err := u.groupEntry(ctx, f, s, byGroup[s.Group.ID])
		if err != nil {
			return nil, err
		}
		l.Entries = append(l.Entries, entry{Group: group})
		for j := i; j < len(page.Sessions); j++ {
			in := &page.Sessions[j]
			if in.Group == nil || in.Group.ID != s.Group.ID {
				continue
			}
			if in.Status == record.Running {
				group.Running++
			}
			if group.Open {
				l.Entries = append(l.Entries, entry{Session: u.sessionEntry(in, true)})
			}
		}
	}
	if len(page.Sessions) == 0 {
		l.Empty = "none"
		if f.Any() {
			l.Empty = "filtered"
		}
	}
	return l, l.fingerprint()
}

// fingerprint sums up what is shown, so that a page whose list stands still is left alone.
func (l *listing) fingerprint() error {
	h := fnv.New64a()
	for _, e := range l.Entries {
		var shown any = e.Group
		if e.Session != nil {
			s := *e.Session
			s.IdleS = nil
			shown = s
		}
		text, err := json.Marshal(shown)
		if err != nil {
			return err
		}
		h.Write(text) //nolint:errcheck // a hash takes everything
	}
	l.State = fmt.Sprintf("%x", h.Sum64())
	return nil
}

func (u *UI) sessionEntry(s *control.Summary, in bool) *sessionEntry {
	e := &sessionEntry{Summary: *s, Key: s.SessionID, Href: u.links.session(s.SessionID), In: in, RunText: runWords(s.Run), IsRunning: s.Status == record.Running}
	e.CloseHref, e.CancelHref = e.Href+"/close", e.Href+"/cancel"
	if s.Reward != nil {
		e.RewardText = decimal(*s.Reward)
	}
	if s.Env != nil {
		e.EnvText = s.Env.Name
		if e.EnvText == "" {
			e.EnvText = s.Env.ID
		}
	}
	if s.Harness != nil {
		e.HarnessText = *s.Harness
	}
	return e
}

func (u *UI) groupEntry(ctx context.Context, f filter, newest *control.Summary, onPage int) (*groupEntry, error) {
	id := newest.Group.ID
	g := &groupEntry{ID: id, Href: u.links.group(id), Newest: newest.CreatedAt}
	status, err := u.source.Group(ctx, id)
	var gone *control.Error
	switch {
	case errors.As(err, &gone) && gone.Status == http.StatusNotFound: // deleted since
		status = &control.GroupStatus{GroupID: id}
	case err != nil:
		return nil, err
	}
	g.Status, g.Reward, g.Pass = status, spreadOf(status), passOf(status)
	g.Shown = plural(len(status.Sessions), "session")
	switch n := len(status.Sessions); {
	case status.Size != nil && *status.Size > n:
		g.Shown = fmt.Sprintf("%d of %s", n, plural(*status.Size, "session"))
	case status.Size != nil && *status.Size < n:
		g.Shown += fmt.Sprintf(", %d planned", *status.Size)
	}
	if onPage < len(status.Sessions) {
		g.Shown += fmt.Sprintf(", %d here", onPage)
	}
	g.Trainable = fmt.Sprintf("%d trainable", status.NTrainable)
	toggled := f
	if g.Open = slices.Contains(f.Open, id); g.Open {
		toggled.Open = slices.DeleteFunc(slices.Clone(f.Open), func(o string) bool { return o == id })
	} else {
		toggled.Open = append(slices.Clone(f.Open), id)
	}
	g.Toggle = u.links.index() + toggled.query()
	return g, nil
}

// spreadOf is mean and spread of a group's rewards, "" while nothing is scored.
func spreadOf(g *control.GroupStatus) string {
	if g.MeanReward == nil {
		return ""
	}
	s := fmt.Sprintf("%.3g", *g.MeanReward)
	if g.StdReward != nil {
		s += fmt.Sprintf(" ± %.2g", *g.StdReward)
	}
	return s
}

func passOf(g *control.GroupStatus) string {
	if g.PassRate == nil {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100**g.PassRate)
}

func (u *UI) showIndex(w http.ResponseWriter, r *http.Request) error {
	f := filterOf(r.URL.Query())
	list, err := u.listing(r.Context(), f)
	if err != nil {
		return err
	}
	p := indexPage{
		frame: u.frame("Sessions"), Filter: f, List: list, Files: u.actor == nil,
		Statuses: []string{"running", "completed", "failed", "cancelled", "expired"},
		Sinces:   []since{{"1h", "last hour"}, {"24h", "last day"}, {"168h", "last week"}},
	}
	if p.Health, err = u.source.Health(r.Context()); err != nil {
		return err
	}
	curl := []string{"curl", "-s"}
	if u.key {
		curl = append(curl, "-H", "Authorization: Bearer ADMIN_KEY")
	}
	p.Create = command(append(curl, "-H", "Content-Type: application/json", "-d", "{}", u.url+"/sessions")...)
	p.Live = u.live("")
	return u.render(w, "index", p)
}

// showList is the list alone, for pages that are open. Nothing is sent when nothing changed.
func (u *UI) showList(w http.ResponseWriter, r *http.Request) error {
	list, err := u.listing(r.Context(), filterOf(r.URL.Query()))
	if err != nil {
		return err
	}
	if r.Header.Get("X-State") == list.State {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return u.render(w, "listing", list)
}
