package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"

	"captureproxy/proxy/session"
)

// expire ends sessions that have been idle for too long, until ctx is done.
func (a *App) expire(ctx context.Context) {
	ttl := a.config.SessionTTL
	if ttl <= 0 {
		return
	}
	ticker := time.NewTicker(max(min(ttl/10, time.Minute), 10*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		idle, err := a.sessions.Idle(ctx, ttl)
		if err != nil && ctx.Err() == nil {
			a.config.Logger.Warn("idle sessions could not be looked for", zap.Error(err))
		}
		for _, live := range idle {
			_, err := live.Close(ctx, session.Claim{Expired: true}, nil)
			if err != nil && !errors.Is(err, session.ErrEnded) {
				text := strings.ReplaceAll(err.Error(), live.ID(), "…") // an id is a credential
				a.config.Logger.Error("a session could not be expired", zap.String("error", text))
			}
		}
	}
}
