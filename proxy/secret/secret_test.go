package secret_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"captureproxy/proxy/secret"
)

const long = "a secret that is long enough"

func box(t *testing.T, text string) *secret.Box {
	t.Helper()
	b, err := secret.New(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSealedTextOpensForItsSessionOnly(t *testing.T) {
	b := box(t, long)
	one, two := b.Seal("s1", "the-key"), b.Seal("s1", "the-key")
	if bytes.Equal(one, two) || bytes.Contains(one, []byte("the-key")) {
		t.Fatalf("sealed: %q, %q", one, two)
	}
	for _, sealed := range [][]byte{one, two} {
		if key, err := box(t, long).Open("s1", sealed); key != "the-key" || err != nil {
			t.Errorf("opened: %q, %v", key, err)
		}
	}
	if key, err := b.Open("s2", one); key != "" || !errors.Is(err, secret.ErrOther) {
		t.Errorf("for another session: %q, %v", key, err)
	}
	if key, err := box(t, long+"!").Open("s1", one); key != "" || !errors.Is(err, secret.ErrOther) {
		t.Errorf("under another secret: %q, %v", key, err)
	}
	for i := range one {
		bent := bytes.Clone(one)
		bent[i] ^= 1
		if key, err := b.Open("s1", bent); key != "" || err == nil {
			t.Errorf("with bit %d bent: %q, %v", i*8, key, err)
		}
		if key, err := b.Open("s1", one[:i]); key != "" || err == nil {
			t.Errorf("cut to %d bytes: %q, %v", i, key, err)
		}
	}
}

func TestNoBox(t *testing.T) {
	var none *secret.Box
	if none.Seal("s", "k") != nil || none.Sign([]byte("x")) != nil {
		t.Error("without a secret something was sealed or signed")
	}
	if _, err := none.Open("s", []byte("x")); err == nil || !strings.Contains(err.Error(), "has none") {
		t.Errorf("%v", err)
	}
	if _, err := secret.New("short"); err == nil || !strings.Contains(err.Error(), "openssl rand") {
		t.Errorf("a short secret: %v", err)
	}
}

// The signature is what anybody computes who derives the webhook's key as docs/operations.md says.
func TestSignature(t *testing.T) {
	mac := func(key, text []byte) []byte {
		m := hmac.New(sha256.New, key)
		m.Write(text)
		return m.Sum(nil)
	}
	key := mac(mac(make([]byte, 32), []byte(long)), []byte("capture-proxy webhook\x01"))
	if body := []byte(`{"a":1}`); !hmac.Equal(box(t, long).Sign(body), mac(key, body)) {
		t.Error("another signature than the documented one")
	}
}
