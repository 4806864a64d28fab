package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

func TestServesCredentials(t *testing.T) {
	for address, want := range map[string]bool{
		"169.254.169.254": true, "169.254.0.1": true, "::ffff:169.254.169.254": true, "::169.254.169.254": true, "64:ff9b::a9fe:a9fe": true, "2002:a9fe:a9fe::": true,
		"fe80::1": true, "fe80::1%lo": true, "fd00:ec2::254": true, "fd20:ce::254": true, "100.100.100.200": true, "64:ff9b::6464:64c8": true, "168.63.129.16": true, "192.0.0.192": true,
		"127.0.0.1": false, "::1": false, "::": false, "0.0.0.0": false, "10.0.0.1": false, "::ffff:10.0.0.1": false, "64:ff9b::a00:1": false, "2002:a00:1::": false, "fd00::1": false, "2001:db8::1": false, "100.100.100.100": false,
	} {
		if got := ServesCredentials(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

// However an address is spelled, where it leads is looked at when it is connected to. Spellings that this system does not read
// lead nowhere.
func TestSpellingsOfLinkLocal(t *testing.T) {
	for _, host := range []string{
		"169.254.169.254", "169.254.169.254.", "2852039166", "0xa9fea9fe", "0xA9.0xFE.0xA9.0xFE", "0251.0376.0251.0376", "025177524776", "169.16689662", "169.254.43518", "169.254.169.254:80",
		"[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[0:0:0:0:0:ffff:a9fe:a9fe]", "[::169.254.169.254]", "[64:ff9b::169.254.169.254]", "[fe80::1%25lo]", "[fd00:ec2::254]",
		"\uff11\uff16\uff19.254.169.254", "169\u3002254\u3002169\u3002254", "\u2460\u2465\u2468.254.169.254",
	} {
		u, err := url.Parse("http://" + host)
		if err != nil {
			continue
		}
		p := newPool(u, true)
		p.dialer.Resolver = (&nameServer{addresses: []netip.Addr{netip.MustParseAddr("169.254.169.254")}}).start(t) // the worst that a name server can say
		if c, err := p.dial(t.Context()); err == nil || !strings.Contains(err.Error(), "link-local") && !strings.Contains(err.Error(), "no such host") && !strings.Contains(err.Error(), "no suitable address") {
			t.Errorf("%s: %v", host, err)
			if err == nil {
				c.Close()
			}
		}
	}
}

// A name that led to an engine once and to a link-local address the next time is refused then.
func TestRebinding(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	up, err := NewUpstream(Config{URL: "http://engine.test:" + port, NoLinkLocal: true})
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	names := &nameServer{addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("127.0.0.1")}}
	up.pool.dialer.Resolver = names.start(t)
	for n, refused := range []bool{false, true, false} {
		resp, err := up.Do(t.Context(), &Request{Method: "GET", Path: "/models"})
		if err == nil {
			resp.Body.Close()
			up.pool.close() // the next call connects anew
		}
		if got := err != nil && errors.Is(err, ErrNotSent) && strings.Contains(err.Error(), "link-local"); got != refused || !refused && err != nil {
			t.Errorf("connection %d: %v", n, err)
		}
	}
}

// nameServer answers every question for an IPv4 address with the next of its addresses, the last one for ever.
type nameServer struct {
	addresses []netip.Addr
	asked     atomic.Int64
}

func (n *nameServer) start(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		buf := make([]byte, 512)
		for {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := n.answer(buf[:size]); answer != nil {
				conn.WriteTo(answer, from) //nolint:errcheck // who asked asks again
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// answer writes a DNS message (RFC 1035, 4.1): the question again, and for one of type A an address.
func (n *nameServer) answer(q []byte) []byte {
	if len(q) < 12 {
		return nil
	}
	end := 12
	for end < len(q) && q[end] != 0 {
		end += int(q[end]) + 1
	}
	if end += 5; end > len(q) {
		return nil
	}
	out := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	if binary.BigEndian.Uint16(q[end-4:]) != 1 {
		return out
	}
	out[7] = 1
	to := n.addresses[min(int(n.asked.Add(1))-1, len(n.addresses)-1)].As4()
	return append(out, append([]byte{0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4}, to[:]...)...)
}
