package main

import (
	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/secret"
	"captureproxy/proxy/webhook"
)

// openWebhook has the document of every session that ends sent to --webhook, and returns what sends one again.
func (a *App) openWebhook(box *secret.Box) (again func(*record.Session), err error) {
	if a.config.Webhook == "" {
		return nil, nil
	}
	a.webhook, err = webhook.New(webhook.Options{
		URL: a.config.Webhook, Secret: box, Sessions: a.sessions, Store: a.store, Logger: a.config.Logger,
		Document: export.Options{ProxyVersion: version()},
	})
	if err != nil {
		return nil, usagef("--webhook: %w", err)
	}
	a.sessions.OnEnd(a.webhook.Mark, a.webhook.Send)
	return a.webhook.Again, nil
}
