package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
)

// CreateRequest asks for a session. All of it is optional.
type CreateRequest struct {
	SessionID       *string                    `json:"session_id,omitempty"`
	Metadata        map[string]json.RawMessage `json:"metadata,omitempty"`
	Env             *record.Env                `json:"env,omitempty"`
	Group           *Group                     `json:"group,omitempty"`
	Run             *Run                       `json:"run,omitempty"`
	Purpose         record.Purpose             `json:"purpose,omitempty"`
	Frozen          bool                       `json:"frozen,omitempty"`
	Sampling        *Sampling                  `json:"sampling,omitempty"`
	EvalSampling    *EvalSampling              `json:"eval_sampling,omitempty"`
	Continuity      string                     `json:"continuity,omitempty"`
	ReasoningField  string                     `json:"reasoning_field,omitempty"`
	Shared          record.Shared              `json:"shared,omitempty"`
	MaxModelCalls   *Whole                     `json:"max_model_calls,omitempty"`
	MaxOutputTokens *Whole                     `json:"max_output_tokens,omitempty"`
	MinTurns        *Whole                     `json:"min_turns,omitempty"`
	LLMURL          string                     `json:"llm_url,omitempty"`
	Model           string                     `json:"model,omitempty"`
	APIKey          string                     `json:"api_key,omitempty"`
	AuthHeader      string                     `json:"auth_header,omitempty"`
	Provider        string                     `json:"provider,omitempty"`
}

// Group names the sessions planned together from one task.
type Group struct {
	ID   string `json:"id"`
	Size *Whole `json:"size,omitempty"`
}

// Created is a session that was created. Levels are nil while the engine is not measured.
type Created struct {
	SessionID     string        `json:"session_id"`
	BaseURL       string        `json:"base_url"`
	CaptureLevel  *record.Level `json:"capture_level"`
	RolloutType   *string       `json:"rollout_type"`
	MaxModelCalls *int          `json:"max_model_calls"`
	LLMURL        *string       `json:"llm_url"`
	Model         *string       `json:"model"`
	// KeyStored says whether the session's own api_key survives this process, encrypted; null when it brought none.
	KeyStored *bool `json:"key_stored"`
}

func (a *API) createSession(w http.ResponseWriter, r *http.Request) error {
	var req CreateRequest
	if err := decode(w, r, &req, false); err != nil {
		return err
	}
	rec, err := a.newRecord(&req)
	if err != nil {
		return err
	}
	up, err := a.engineFor(&req)
	if err != nil {
		return err
	}
	// What is begun is finished: a caller that hangs up comes back with the same request.
	ctx := context.WithoutCancel(r.Context())
	live, err := a.repeated(ctx, rec, up)
	if live == nil && err == nil {
		if err = a.measure(ctx, rec, up); err == nil {
			a.sealKey(rec, req.APIKey)
			live, err = a.Sessions.Create(ctx, rec, up)
		}
	}
	if err == nil {
		err = a.sealAgain(ctx, live, req.APIKey)
	}
	if err != nil {
		return err
	}
	writeJSON(w, a.created(live.Record(), r))
	return nil
}

// sealKey puts the credential of a session's engine into its record, encrypted; without a secret it stays out of it.
func (a *API) sealKey(rec *record.Session, key string) {
	if a.Secret == nil || key == "" {
		return
	}
	if rec.ID == "" {
		rec.ID = session.NewID() // what is sealed is sealed for one id
	}
	rec.SealedKey = a.Secret.Seal(rec.ID, key)
}

// sealAgain stores a session's credential that this proxy could not read, or had no secret for: its creator has just
// brought it again.
func (a *API) sealAgain(ctx context.Context, live *session.Live, key string) error {
	if a.Secret == nil || key == "" {
		return nil
	}
	if _, err := a.Secret.Open(live.ID(), live.Record().SealedKey); err == nil {
		return nil
	}
	_, err := live.Update(ctx, func(s *record.Session) { a.sealKey(s, key) })
	return err
}

// keyStored says whether a session's own credential is stored, nil when it has none.
func keyStored(rec *record.Session) *bool {
	if !rec.Spec.Keyed {
		return nil
	}
	stored := len(rec.SealedKey) > 0
	return &stored
}

// repeated answers a request that was answered before, whatever the engine is like by now. It returns nil where there
// is no session of that name.
func (a *API) repeated(ctx context.Context, rec *record.Session, up *engine.Upstream) (*session.Live, error) {
	if rec.ID == "" {
		return nil, nil
	}
	live, err := a.Sessions.Repeat(ctx, rec.ID, rec.Spec.RequestHash, up)
	if errors.Is(err, session.ErrUnknown) {
		return nil, nil
	}
	return live, err
}

// newRecord makes the record that a valid request asks for.
func (a *API) newRecord(req *CreateRequest) (*record.Session, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	outputCap, err := req.outputCap()
	if err != nil {
		return nil, err
	}
	rec := &record.Session{
		Metadata: req.Metadata, Engine: record.Engine{ParamEdits: []record.Edit{}},
		TrainAborted: a.TrainAborted, AllowRawLogprobs: a.AllowRawLogprobs,
		Spec: record.Spec{
			Env: req.Env, Run: req.Run.json(), Purpose: req.Purpose, Frozen: req.Frozen,
			Sampling: req.Sampling.json(), EvalSampling: req.EvalSampling.json(),
			Continuity: req.Continuity, ReasoningField: req.ReasoningField, Shared: req.Shared,
			MaxModelCalls: smaller(req.MaxModelCalls.int(), a.MaxModelCalls), MaxOutputTokens: outputCap, MinTurns: req.MinTurns.int(),
			LLMURL: req.LLMURL, Model: req.Model, Keyed: req.APIKey != "", AuthHeader: req.AuthHeader, Provider: req.Provider,
			RequestHash: req.hash(),
		},
	}
	if req.SessionID != nil {
		rec.ID = *req.SessionID
	}
	if req.Group != nil {
		rec.Spec.Group = &record.Group{ID: req.Group.ID, Size: req.Group.Size.int()}
	}
	a.fillIn(&rec.Spec)
	return rec, nil
}

// fillIn gives a session what the proxy's settings say where its creator does not.
func (a *API) fillIn(s *record.Spec) {
	if s.Purpose == "" {
		s.Purpose = record.PurposeAuto
	}
	if s.Shared == "" {
		s.Shared = a.Shared
	}
	if s.Continuity == "" {
		s.Continuity = a.Continuity
	}
	if s.ReasoningField == "" {
		s.ReasoningField = a.ReasoningField
	}
}

// smaller applies the proxy's bound, 0 for none, to a session's.
func smaller(session *int, bound int) *int {
	if bound > 0 && (session == nil || *session > bound) {
		return &bound
	}
	return session
}

// hash tells this request from others. The credential is not part of it, only that there is one: nothing that follows
// from a secret is stored. Whether it is the same one is seen by the engine that it leads to.
func (req *CreateRequest) hash() string {
	public := *req
	if public.APIKey != "" {
		public.APIKey = "given"
	}
	text, err := json.Marshal(public)
	if err != nil {
		panic("control: a decoded request cannot be encoded: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// measure notes on the record what its engine can do, and refuses what it cannot: now, not minutes later.
func (a *API) measure(ctx context.Context, rec *record.Session, up *engine.Upstream) error {
	var findings []string
	if up != nil {
		ctx, cancel := context.WithTimeout(ctx, a.MeasureFor)
		defer cancel()
		profile := up.Measure(ctx)
		findings = profile.Findings
		rec.CaptureLevel, rec.Engine = profile.Level, up.Record()
	}
	trains, level := rec.Spec.Purpose == record.PurposeTrain, rec.CaptureLevel
	switch {
	case trains && up == nil:
		return &Error{Status: http.StatusServiceUnavailable, Field: "purpose", Message: "train needs an engine that returns token ids, and none is known: give llm_url, or start the proxy with --upstream"}
	case trains && level == "":
		return &Error{Status: http.StatusServiceUnavailable, Field: "purpose", Message: "train needs an engine that returns token ids, and " + up.URL() + " does not answer: try again when it is up"}
	case level == "" || level == record.LevelTokens:
		return nil
	case trains:
		return invalid("purpose", "train needs capture level tokens, %s has %s%s", up.URL(), level, because(findings))
	case len(rec.Spec.Sampling) > 0:
		return invalid("sampling", "it is for training and needs capture level tokens, %s has %s%s", up.URL(), level, because(findings))
	}
	return nil
}

func because(findings []string) string {
	if len(findings) == 0 {
		return ""
	}
	return ": " + strings.Join(findings, "; ")
}

// created answers a request for a session.
func (a *API) created(rec *record.Session, r *http.Request) Created {
	return Created{
		SessionID: rec.ID, BaseURL: a.baseURL(r) + "/s/" + rec.ID, CaptureLevel: orNil(rec.CaptureLevel), RolloutType: rolloutType(rec),
		MaxModelCalls: rec.Spec.MaxModelCalls, LLMURL: orNil(rec.Engine.URL), Model: orNil(modelOf(rec)),
		KeyStored: keyStored(rec),
	}
}

// baseURL is where harnesses reach the proxy.
func (a *API) baseURL(r *http.Request) string {
	switch {
	case a.PublicURL != "":
		return a.PublicURL
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// rolloutType is what the session's document will be, nil while that is open.
func rolloutType(rec *record.Session) *string {
	kind := export.TypeEval
	switch {
	case rec.Trains():
		kind = export.TypeTrain
	case rec.CaptureLevel == "" && rec.Spec.Purpose != record.PurposeEval:
		return nil
	}
	return &kind
}

// modelOf is the name that goes upstream.
func modelOf(rec *record.Session) string {
	if rec.Spec.Model != "" {
		return rec.Spec.Model
	}
	return rec.Engine.Model
}

// orNil makes null of what is empty.
func orNil[T ~string](s T) *T {
	if s == "" {
		return nil
	}
	return &s
}
