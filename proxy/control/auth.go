package control

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// keyHash stands for a key, so that comparing takes the same time whatever the length and content.
type keyHash [sha256.Size]byte

func hashKey(key string) keyHash { return sha256.Sum256([]byte(key)) }

// admit decides whether a request may be served at all.
func (a *API) admit(r *http.Request, open bool) error {
	if err := a.checkOrigin(r); err != nil {
		return err
	}
	if open || a.isAdmin(r) {
		return nil
	}
	if a.AdminKey == "" {
		return &Error{Status: http.StatusForbidden, Message: "the control API is closed: start the proxy with --admin-key to use it from other machines"}
	}
	return &Error{Status: http.StatusUnauthorized, Message: "this needs the proxy's admin key, as `Authorization: Bearer KEY` or in x-api-key; a session's own key does not open it"}
}

// isAdmin reports whether the caller may see and do everything. A session's key is none: an agent must not be able to
// score itself.
func (a *API) isAdmin(r *http.Request) bool {
	if a.AdminKey == "" {
		return a.Loopback
	}
	keys := []string{r.Header.Get("X-Api-Key"), r.Header.Get("X-Goog-Api-Key")}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		keys = append(keys, strings.TrimSpace(token))
	}
	is := false
	for _, key := range keys {
		is = a.IsAdminKey(key) || is
	}
	return is
}

// IsAdminKey compares a key with the admin's, in constant time. Without an admin key none is.
func (a *API) IsAdminKey(key string) bool {
	given := hashKey(key)
	return a.AdminKey != "" && subtle.ConstantTimeCompare(given[:], a.admin[:]) == 1
}

// checkOrigin keeps web pages out, which reach a loopback address by way of the browser of whoever looks at them: by a
// name of their own that leads there (DNS rebinding), or across origins.
func (a *API) checkOrigin(r *http.Request) error { return CheckOrigin(r, a.Loopback, a.public) }

// CheckOrigin is what the API asks of every request, for pages that stand beside it. loopback says that only this machine
// reaches the listener, public is a host name that leads to it all the same, or empty.
func CheckOrigin(r *http.Request, loopback bool, public string) error {
	if loopback && !isLoopback(r.Host) && (public == "" || r.Host != public) {
		return &Error{Status: http.StatusForbidden, Message: "on a loopback address the Host header must be a loopback name: use http://127.0.0.1 or http://localhost"}
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return &Error{Status: http.StatusForbidden, Message: "web pages of another origin may not use the control API"}
	}
	return nil
}

// isLoopback reports whether a Host header names this machine, with or without a port.
func isLoopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	} else {
		name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	}
	if strings.EqualFold(strings.TrimSuffix(name, "."), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}

// hostOf is the Host header of requests to a URL.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}
