package main

import (
	"net/http"

	"captureproxy/proxy/control"
)

// keepPagesOut refuses model calls of web pages, where any key would get a session: a page reaches a loopback address by way
// of the browser of whoever looks at it, under a name of its own (DNS rebinding) or across origins.
func keepPagesOut(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := control.CheckOrigin(r, true, ""); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
