package main

import (
	"sync"

	"go.uber.org/zap"

	"captureproxy/proxy/secret"
)

// sealer returns what keeps the engine keys of sessions, nil without a secret.
func sealer(text string) (*secret.Box, error) {
	if text == "" {
		return nil, nil
	}
	box, err := secret.New(text)
	if err != nil {
		return nil, usagef("--secret: %w", err)
	}
	return box, nil
}

// sealedOtherwise says, once however many sessions it concerns, that stored engine keys do not open.
func (a *App) sealedOtherwise() func(error) {
	var once sync.Once
	return func(err error) {
		once.Do(func() {
			a.config.Logger.Error("sessions whose engine key does not open get 503: start with the CAPTURE_PROXY_SECRET of before, or create them again with the same request and their api_key",
				zap.Error(err))
		})
	}
}
