package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"captureproxy/export"
)

// Client speaks to a control API. Its methods return an *Error for an answer that is none.
type Client struct {
	URL string // of the proxy, without a path
	Key string // the admin key, "" when the proxy has none
	// HTTP does the calls; http.DefaultClient when nil. A close takes as long as calls are under way.
	HTTP *http.Client
}

// Create creates a session.
func (c *Client) Create(ctx context.Context, req CreateRequest) (*Created, error) {
	return ask[Created](ctx, c, http.MethodPost, "/sessions", nil, req)
}

// ListOptions choose sessions of the run index; zero values choose all.
type ListOptions struct {
	Status, Group, Run, Env string
	Since                   time.Time
	Limit                   int
	After                   string
}

// List returns one page of the run index.
func (c *Client) List(ctx context.Context, o ListOptions) (*SessionList, error) {
	q := url.Values{}
	for name, value := range map[string]string{"status": o.Status, "group": o.Group, "run": o.Run, "env": o.Env, "after": o.After} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.UTC().Format(time.RFC3339Nano))
	}
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return ask[SessionList](ctx, c, http.MethodGet, "/sessions", q, nil)
}

// Status returns how a session stands.
func (c *Client) Status(ctx context.Context, id string) (*Status, error) {
	return ask[Status](ctx, c, http.MethodGet, sessionPath(id, ""), nil, nil)
}

// DocumentOptions choose what a document holds.
type DocumentOptions struct {
	IncludeDiscarded, IncludeMessages bool
	Shared                            string // every or once, "" as the session has it
}

func (o DocumentOptions) query() url.Values {
	q := url.Values{}
	if o.IncludeDiscarded {
		q.Set("include_discarded", "true")
	}
	if o.IncludeMessages {
		q.Set("include_messages", "true")
	}
	if o.Shared != "" {
		q.Set("shared", o.Shared)
	}
	return q
}

// Close ends a session and returns its document, as bytes. wait bounds how long calls under way are waited for; a
// negative one leaves it to the proxy.
func (c *Client) Close(ctx context.Context, id string, req CloseRequest, wait time.Duration, o DocumentOptions) ([]byte, error) {
	q := o.query()
	if wait >= 0 {
		q.Set("wait", wait.String())
	}
	return c.do(ctx, http.MethodPost, sessionPath(id, "/close"), q, req)
}

// Cancel gives a session up.
func (c *Client) Cancel(ctx context.Context, id, reason string) (*Status, error) {
	return ask[Status](ctx, c, http.MethodPost, sessionPath(id, "/cancel"), nil, CancelRequest{Reason: reason})
}

// Score changes what is said about a session.
func (c *Client) Score(ctx context.Context, id string, req ScoreRequest) (*Scored, error) {
	return ask[Scored](ctx, c, http.MethodPost, sessionPath(id, "/score"), nil, req)
}

// Delete removes a session and its turns.
func (c *Client) Delete(ctx context.Context, id string) error {
	_, err := ask[Deleted](ctx, c, http.MethodDelete, sessionPath(id, ""), nil, nil)
	return err
}

// Rollout returns a session's document, as bytes; export.Read reads them.
func (c *Client) Rollout(ctx context.Context, id string, o DocumentOptions) ([]byte, error) {
	return c.do(ctx, http.MethodGet, sessionPath(id, "/rollout"), o.query(), nil)
}

// TraceEntries returns a session's usable agent turns.
func (c *Client) TraceEntries(ctx context.Context, id string) (*TraceEntries, error) {
	return ask[TraceEntries](ctx, c, http.MethodGet, sessionPath(id, "/trace_entries"), nil, nil)
}

// Group returns how the sessions of a group did.
func (c *Client) Group(ctx context.Context, id string) (*GroupStatus, error) {
	return ask[GroupStatus](ctx, c, http.MethodGet, "/groups/"+url.PathEscape(id), nil, nil)
}

// SetPolicy says which weights are live from now on.
func (c *Client) SetPolicy(ctx context.Context, version int64) error {
	v := Whole(version)
	_, err := ask[Policy](ctx, c, http.MethodPost, "/policy", nil, policyRequest{Version: &v})
	return err
}

// Health returns how the proxy is.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	return ask[Health](ctx, c, http.MethodGet, "/health", nil, nil)
}

// ReadRollout is Rollout, read.
func (c *Client) ReadRollout(ctx context.Context, id string, o DocumentOptions) (*export.Rollout, error) {
	text, err := c.Rollout(ctx, id, o)
	if err != nil {
		return nil, err
	}
	return export.Read(bytes.NewReader(text))
}

func sessionPath(id, rest string) string { return "/sessions/" + url.PathEscape(id) + rest }

func ask[T any](ctx context.Context, c *Client, method, path string, q url.Values, body any) (*T, error) {
	text, err := c.do(ctx, method, path, q, body)
	if err != nil {
		return nil, err
	}
	answer := new(T)
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, fmt.Errorf("the answer to %s %s is not what a control API says: %w", method, path, err)
	}
	return answer, nil
}

// do makes one call and returns the body of a good answer.
func (c *Client) do(ctx context.Context, method, path string, q url.Values, body any) ([]byte, error) {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("the request cannot be written as JSON: %w", err)
		}
		sent = bytes.NewReader(text)
	}
	address := strings.TrimRight(c.URL, "/") + path
	if len(q) > 0 {
		address += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, address, sent)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the proxy at %s cannot be reached: %w", c.URL, withoutURL(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("the proxy's answer broke off: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errorOf(resp, text)
	}
	return text, nil
}

// withoutURL takes the address, which holds a session's id, off a transport error.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// errorOf reads an answer that is none.
func errorOf(resp *http.Response, text []byte) error {
	var body errorBody
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) //nolint:errcheck // "" is no JSON
	if media != "application/json" || json.Unmarshal(text, &body) != nil || body.Error.Message == "" {
		return &Error{Status: resp.StatusCode, Message: "the answer is " + resp.Status + ": is this a capture-proxy?"}
	}
	e := &Error{Status: resp.StatusCode, Field: body.Error.Param, Type: body.Error.Type, Message: body.Error.Message}
	if e.Field != "" { // which the message begins with
		e.Message = strings.TrimPrefix(e.Message, e.Field+": ")
	}
	return e
}
