package control

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// documentQuery are the parameters that choose what a document holds.
var documentQuery = []string{"include_discarded", "include_messages", "shared", "format"}

func (a *API) documentOptions(q url.Values) (export.Options, error) {
	o := export.Options{Shared: record.Shared(q.Get("shared")), ProxyVersion: a.ProxyVersion}
	var err error
	if o.IncludeDiscarded, err = flag(q, "include_discarded"); err != nil {
		return o, err
	}
	if o.IncludeMessages, err = flag(q, "include_messages"); err != nil {
		return o, err
	}
	if !slices.Contains(sharedModes, o.Shared) {
		return o, invalid("shared", "it is every or once")
	}
	if f := q.Get("format"); f != "" && f != "rollout" && f != "json" {
		return o, invalid("format", "the proxy gives the rollout document only: for %q give it to `capture-proxy export`", f)
	}
	return o, nil
}

// Document is a session's whole document, discarded rows and messages included, for who shares the process with the API.
// What lists show of it is remembered with it.
func (a *API) Document(ctx context.Context, id string) (*export.Rollout, error) {
	v, err := a.Sessions.Stand(ctx, id)
	if err != nil {
		return nil, err
	}
	now := circumstances(v)
	rec, calls, err := a.log(ctx, v)
	if err != nil {
		return nil, err
	}
	doc := export.Build(rec, calls, export.Options{IncludeDiscarded: true, IncludeMessages: true, ProxyVersion: a.ProxyVersion})
	a.remember(v, now, calls, doc)
	return doc, nil
}

// document derives a session's document from its log.
func (a *API) document(ctx context.Context, id string, o export.Options) (*export.Rollout, error) {
	v, err := a.Sessions.Stand(ctx, id)
	if err != nil {
		return nil, err
	}
	rec, calls, err := a.log(ctx, v)
	if err != nil {
		return nil, err
	}
	return export.Build(rec, calls, o), nil
}

// sendDocument streams a document. It fails only when the client is gone.
func sendDocument(w http.ResponseWriter, doc *export.Rollout) error {
	w.Header().Set("Content-Type", "application/json")
	doc.WriteTo(w) //nolint:errcheck // the answer has begun: the client sees that it is cut short
	return nil
}

func (a *API) showRollout(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, documentQuery...)
	if err != nil {
		return err
	}
	o, err := a.documentOptions(q)
	if err != nil {
		return err
	}
	doc, err := a.document(r.Context(), r.PathValue("id"), o)
	if err != nil {
		return err
	}
	return sendDocument(w, doc)
}

// TraceEntries are the usable agent turns of a session, as OpenEnv's trainers read them.
type TraceEntries struct {
	SessionID string              `json:"session_id"`
	Entries   []export.TraceEntry `json:"entries"`
}

func (a *API) showTraceEntries(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "shared")
	if err != nil {
		return err
	}
	o, err := a.documentOptions(q)
	if err != nil {
		return err
	}
	o.IncludeMessages = true
	doc, err := a.document(r.Context(), r.PathValue("id"), o)
	if err != nil {
		return err
	}
	entries, err := export.TraceEntries(doc)
	if err != nil {
		return err
	}
	writeJSON(w, TraceEntries{SessionID: doc.SessionID, Entries: entries})
	return nil
}

// saveDocument writes <session>.json so that whoever reads the directory sees a whole document or none.
func saveDocument(dir string, doc *export.Rollout) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".document-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = doc.WriteTo(f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	// The session's id is a file name: letters, digits, _ . and -, no dot in front.
	return os.Rename(f.Name(), filepath.Join(dir, doc.SessionID+".json"))
}
