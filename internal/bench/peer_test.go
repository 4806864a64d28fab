package bench

import (
	"slices"
	"strings"
	"testing"
)

func TestPeersAreReadFromTheCommandLine(t *testing.T) {
	for text, want := range map[string]Peer{
		"plain=http://127.0.0.1:9001":       {Name: "plain", Addr: "127.0.0.1:9001", Path: "/v1"},
		"in memory=http://h/api/v2/":        {Name: "in memory", Addr: "h:80", Path: "/api/v2"},
		"o=http://h:1,sessions=openenv":     {Name: "o", Addr: "h:1", Path: "/v1", Sessions: sessionsOpenEnv},
		"r=http://h:1,pid=12,sessions=rllm": {Name: "r", Addr: "h:1", Path: "/v1", PID: 12, Sessions: sessionsRLLM},
		"l=http://h:1,Authorization:Bearer a=b,X-One: 1": {Name: "l", Addr: "h:1", Path: "/v1",
			Headers: []string{"Authorization: Bearer a=b", "X-One: 1"}},
	} {
		got, err := ParsePeer(text)
		if err != nil || got.Name != want.Name || got.Addr != want.Addr || got.Path != want.Path || got.PID != want.PID ||
			got.Sessions != want.Sessions || !slices.Equal(got.Headers, want.Headers) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "name", "=http://h", "n=", "n=h:1", "n=https://h", "n=http://u:secret@h", "n=http://h?secret", "n=http://h,pid=x", "n=http://h,pid=0",
		"n=http://h,sessions=", "n=http://h,secret", "n=http://h,A: 1\r\nB: secret",
	} {
		if got, err := ParsePeer(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error repeats it: %v", text, err)
		}
	}
}

// A session's key goes before a peer's own, on the engine's routes; other headers stay.
func TestASessionsKeyTakesThePlaceOfAnAuthorization(t *testing.T) {
	target := Target{Addr: "h", Path: "/v1", Headers: []string{"authorization: Bearer admin", "X-One: 1"}}
	head := string(requestHead(target, chatPath, "session", 2))
	if strings.Contains(head, "admin") || !strings.Contains(head, "\r\nAuthorization: Bearer session\r\n") || !strings.Contains(head, "\r\nX-One: 1\r\n") {
		t.Error(head)
	}
	if head := string(requestHead(target, chatPath, "", 2)); !strings.Contains(head, "\r\nauthorization: Bearer admin\r\n") {
		t.Error(head)
	}
}
