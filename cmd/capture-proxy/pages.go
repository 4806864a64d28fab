package main

import (
	"net/http"
	"net/url"
	"strings"

	"captureproxy/proxy/control"
	"captureproxy/proxy/ui"
)

// withPages puts the pages for people beside the control API.
func (a *App) withPages(api *control.API) (http.Handler, error) {
	c := a.config
	source := ui.NewLive(api)
	o := ui.Options{
		Source: source, URL: a.URL(), Loopback: onLoopback(c.Listen), Events: source.Events(), Engine: tokenizers(a.hub), Logger: c.Logger,
	}
	if c.AdminKey != "" {
		o.IsKey = api.IsAdminKey
	}
	if public, err := url.Parse(c.PublicURL); err == nil && c.PublicURL != "" {
		o.URL, o.Public, o.Secure = strings.TrimRight(c.PublicURL, "/"), public.Host, public.Scheme == "https"
	}
	pages, err := ui.New(o)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ui" || strings.HasPrefix(r.URL.Path, "/ui/") {
			pages.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	}), nil
}
