package bench

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Peer is another proxy, started by somebody else in front of the same engine.
type Peer struct {
	Name    string
	Addr    string // host:port
	Path    string // of its API root
	Headers []string
	PID     int // of its process, 0 when nobody told
	// Sessions says by which API sessions are made and their records read back, "" for none: every call then goes to the same
	// address, and what the peer records nobody knows.
	Sessions string
}

// The ways of having sessions that are known.
const (
	sessionsOpenEnv = "openenv" // the key is the session; its export is read as trace entries
	sessionsRLLM    = "rllm"    // the path names the session; its traces are read
)

// ParsePeer reads NAME=URL[,pid=PID][,sessions=openenv|rllm][,HEADER: VALUE]... An error does not repeat the headers: there are
// keys in them.
func ParsePeer(text string) (p Peer, err error) {
	name, rest, found := strings.Cut(text, "=")
	if p.Name = strings.TrimSpace(name); !found || p.Name == "" {
		return p, errors.New("a peer is written NAME=URL, with what else is to be said of it after commas")
	}
	parts := strings.Split(rest, ",")
	u, err := url.Parse(parts[0])
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" {
		return p, fmt.Errorf("the peer %s needs an address like http://127.0.0.1:8100 after its name", p.Name)
	}
	if p.Addr, p.Path = u.Host, strings.TrimRight(u.Path, "/"); u.Port() == "" {
		p.Addr += ":80"
	}
	if p.Path == "" {
		p.Path = "/v1"
	}
	for _, part := range parts[1:] {
		if err := p.option(part); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *Peer) option(text string) (err error) {
	if value, ok := strings.CutPrefix(text, "pid="); ok {
		if p.PID, err = strconv.Atoi(value); err != nil || p.PID <= 0 {
			return fmt.Errorf("the pid of the peer %s is not the number of a process", p.Name)
		}
		return nil
	}
	if value, ok := strings.CutPrefix(text, "sessions="); ok {
		if p.Sessions = value; value != sessionsOpenEnv && value != sessionsRLLM {
			return fmt.Errorf("the sessions of the peer %s are %s or %s; leave it out for a peer without", p.Name, sessionsOpenEnv, sessionsRLLM)
		}
		return nil
	}
	name, value, found := strings.Cut(text, ":")
	if !found || strings.TrimSpace(name) == "" || strings.ContainsAny(text, "\r\n") {
		return fmt.Errorf("after the address of the peer %s come pid=PID, sessions=NAME, and headers like \"Authorization: Bearer KEY\"", p.Name)
	}
	p.Headers = append(p.Headers, strings.TrimSpace(name)+": "+strings.TrimSpace(value))
	return nil
}
