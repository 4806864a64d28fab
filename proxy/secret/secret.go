// Package secret keeps what a proxy must remember and nobody may read: the API keys of engines that sessions name. The
// operator gives one secret; keys for different uses are derived from it (HKDF, RFC 5869, with SHA-256), so that knowing
// one of them tells nothing of the secret or of another.
//
//	engine keys   AES-256-GCM under HKDF(secret, info "capture-proxy session engine key"), the session's id as associated data
//	webhooks      HMAC-SHA256 under HKDF(secret, info "capture-proxy webhook"), of the body
//
// Sealed text is a version byte (1), a nonce of 12 bytes, and what GCM makes of it. A text that was sealed for another
// session, or under another secret, does not open.
package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// MinLength is the least length of a secret, in bytes. It is derived from without stretching, so it must be random.
const MinLength = 16

// ErrOther: the text was sealed under another secret or for another session.
var ErrOther = errors.New("the engine key of the session does not open: it was stored under another secret")

const (
	sealing = "capture-proxy session engine key"
	signing = "capture-proxy webhook"
	version = 1
)

// Box seals and signs. It is safe for concurrent use; a nil Box does neither, see the methods.
type Box struct {
	seal cipher.AEAD
	sign []byte
}

// New returns a box for an operator's secret.
func New(secret string) (*Box, error) {
	if len(secret) < MinLength {
		return nil, fmt.Errorf("a secret of %d bytes can be guessed: take at least %d random ones, as `openssl rand -base64 32` prints them", len(secret), MinLength)
	}
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, sealing, 32)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	sign, err := hkdf.Key(sha256.New, []byte(secret), nil, signing, 32)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	return &Box{seal: seal, sign: sign}, nil
}

// Seal encrypts a session's key; nil when there is no box.
func (b *Box) Seal(session, key string) []byte {
	if b == nil {
		return nil
	}
	nonce := make([]byte, b.seal.NonceSize())
	rand.Read(nonce) // never fails (Go 1.24)
	return b.seal.Seal(append([]byte{version}, nonce...), nonce, []byte(key), []byte(session))
}

// Open decrypts what Seal made for the same session.
func (b *Box) Open(session string, sealed []byte) (string, error) {
	switch {
	case b == nil:
		return "", errors.New("the engine key of the session is stored under a secret, and this proxy has none")
	case len(sealed) < 1+b.seal.NonceSize() || sealed[0] != version:
		return "", errors.New("the stored engine key of the session is of a form that this version does not know")
	}
	nonce, text := sealed[1:1+b.seal.NonceSize()], sealed[1+b.seal.NonceSize():]
	key, err := b.seal.Open(nil, nonce, text, []byte(session))
	if err != nil { // it says no more than that
		return "", ErrOther
	}
	return string(key), nil
}

// Sign returns the code by which whoever knows the webhook's key recognises a body; nil when there is no box.
func (b *Box) Sign(body []byte) []byte {
	if b == nil {
		return nil
	}
	mac := hmac.New(sha256.New, b.sign)
	mac.Write(body)
	return mac.Sum(nil)
}
