package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"captureproxy/internal/record"
	"captureproxy/proxy/session"
)

// unregistered returns what makes a session for a key that names none, nil when such keys are refused. The session is
// named by a hash: the key may be a real provider's, so it is never stored.
func (a *App) unregistered() func(ctx context.Context, key string) (*session.Live, error) {
	if !a.config.AllowUnregistered {
		return nil
	}
	return func(ctx context.Context, key string) (*session.Live, error) {
		sum := sha256.Sum256([]byte(key))
		id := "key-" + hex.EncodeToString(sum[:16])
		if live, err := a.sessions.Find(ctx, id); !errors.Is(err, session.ErrUnknown) {
			return live, err
		}
		return a.sessions.Create(ctx, a.recordOf(id), a.hub.Default())
	}
}

// recordOf is the record of a session that nobody asked for.
func (a *App) recordOf(id string) *record.Session {
	c := a.config
	rec := &record.Session{
		ID: id, Engine: record.Engine{ParamEdits: []record.Edit{}}, TrainAborted: c.TrainAborted, AllowRawLogprobs: c.AllowRawLogprobs,
		// Two calls may bring the key at the same time: equal hashes make the second create a repetition of the first.
		Spec: record.Spec{Purpose: record.PurposeAuto, Shared: c.Shared, ReasoningField: c.ReasoningField, RequestHash: "unregistered"},
	}
	if c.MaxModelCalls > 0 {
		rec.Spec.MaxModelCalls = &c.MaxModelCalls
	}
	if up := a.hub.Default(); up != nil {
		rec.CaptureLevel, rec.Engine = up.Profile().Level, up.Record()
	}
	return rec
}
