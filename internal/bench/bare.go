package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// Bare is what a proxy costs that does nothing: httputil.ReverseProxy with a tuned transport. It reads the request body
// whole before it forwards it, because a relay that does not loses short streams (golang/go#40747).
func Bare(ctx context.Context, l net.Listener, upstream string) error {
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: to.Scheme, Host: to.Host})
		},
		FlushInterval: -1,
		Transport: &http.Transport{
			MaxIdleConns: 0, MaxIdleConnsPerHost: 20000, IdleConnTimeout: time.Minute, DisableCompression: true,
			WriteBufferSize: 16 << 10, ReadBufferSize: 16 << 10,
		},
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 0, max(r.ContentLength, 0)+512)
		buf := bytes.NewBuffer(body)
		if _, err := io.Copy(buf, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(buf.Bytes())), int64(buf.Len())
		proxy.ServeHTTP(w, r)
	})}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
