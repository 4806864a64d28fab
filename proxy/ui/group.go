package ui

import (
	"fmt"
	"net/http"
	"net/url"

	"captureproxy/proxy/control"
)

// groupPage shows how the sessions of one task did, and two of them next to each other.
type groupPage struct {
	frame
	ID      string
	Status  *control.GroupStatus
	Reward  string
	Pass    string
	Members []member
	Low     string
	High    string
	Sides   []comparison
	Curl    string
	Action  string
	Waiting int // sessions that were planned and are not there yet
}

type member struct {
	control.GroupSession
	Href       string
	RewardText string
	X          string // where its reward lies between the lowest and the highest
	A, B       bool   // chosen for comparison
}

// comparison is one of two sessions.
type comparison struct {
	*sessionView
	Steps stepPage
}

const comparedSteps = 200

func (u *UI) showGroup(w http.ResponseWriter, r *http.Request) error {
	id := r.URL.Query().Get("id")
	g, err := u.source.Group(r.Context(), id)
	if err != nil {
		return err
	}
	p := groupPage{frame: u.frame("Group " + id), ID: id, Status: g, Reward: spreadOf(g), Pass: passOf(g), Action: u.links.group(id)}
	p.Members = membersOf(u.links, g)
	if g.Size != nil {
		p.Waiting = max(*g.Size-len(g.Sessions), 0)
	}
	p.Low, p.High = rangeOf(g)
	curl := []string{"curl", "-s"}
	if u.key {
		curl = append(curl, "-H", "Authorization: Bearer ADMIN_KEY")
	}
	if u.actor != nil {
		p.Curl = command(append(curl, u.url+"/groups/"+url.PathEscape(id))...)
	}
	q := r.URL.Query()
	a, b := q.Get("a"), q.Get("b")
	if a == "" && b == "" && len(g.Sessions) > 1 { // the best and the worst tell most
		a, b = extremes(g)
	}
	for i := range p.Members {
		p.Members[i].A, p.Members[i].B = p.Members[i].SessionID == a, p.Members[i].SessionID == b
	}
	for _, key := range []string{a, b} {
		if key == "" {
			continue
		}
		book, err := u.shelf.open(r.Context(), key)
		if err != nil {
			return err
		}
		p.Sides = append(p.Sides, comparison{u.sessionView(book, u.links), stepsOf(book, u.links, 0, comparedSteps)})
	}
	return u.render(w, "group", p)
}

func membersOf(l links, g *control.GroupStatus) []member {
	low, high := bounds(g)
	list := make([]member, len(g.Sessions))
	for i, s := range g.Sessions {
		m := member{GroupSession: s, Href: l.session(s.SessionID)}
		if s.Reward != nil {
			m.RewardText, m.X = decimal(*s.Reward), "50%"
			if high > low {
				m.X = percent(3 + 94*(*s.Reward-low)/(high-low))
			}
		}
		list[i] = m
	}
	return list
}

// bounds are those of the axis: 0 and 1 at least, for most rewards lie there.
func bounds(g *control.GroupStatus) (low, high float64) {
	high = 1
	for _, s := range g.Sessions {
		if s.Reward != nil {
			low, high = min(low, *s.Reward), max(high, *s.Reward)
		}
	}
	return low, high
}

func rangeOf(g *control.GroupStatus) (low, high string) {
	l, h := bounds(g)
	return fmt.Sprintf("%.3g", l), fmt.Sprintf("%.3g", h)
}

func extremes(g *control.GroupStatus) (best, worst string) {
	bi, wi := -1, -1
	for i, s := range g.Sessions {
		if s.Reward == nil {
			continue
		}
		if bi < 0 || *s.Reward > *g.Sessions[bi].Reward {
			bi = i
		}
		if wi < 0 || *s.Reward < *g.Sessions[wi].Reward {
			wi = i
		}
	}
	if bi < 0 || bi == wi {
		return g.Sessions[0].SessionID, g.Sessions[1].SessionID
	}
	return g.Sessions[bi].SessionID, g.Sessions[wi].SessionID
}
