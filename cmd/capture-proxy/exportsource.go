package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"captureproxy/export"
	"captureproxy/export/format"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
	"captureproxy/store"
	"captureproxy/store/postgres"
)

// exportSource says where the documents are, and which of them are meant.
type exportSource struct {
	data, url, key, group, run, since string
	sessions                          []string
	shared                            record.Shared
}

func (s *exportSource) add(f *pflag.FlagSet) {
	f.StringVar(&s.data, "data", "", "directory of a store, or the address of a database, postgres://…")
	f.StringVar(&s.url, "url", "", "a running proxy's URL")
	f.StringVar(&s.key, "admin-key", "", "that proxy's admin key")
	f.StringSliceVar(&s.sessions, "session", nil, "export this session (repeatable)")
	f.StringVar(&s.group, "group", "", "export the sessions of this group")
	f.StringVar(&s.run, "run", "", "export the sessions of this run")
	f.StringVar(&s.since, "since", "", "export sessions created since, as in 24h or 2026-01-31T12:00:00Z")
}

// open finds the documents. They come oldest first, or in the order in which they were named. release gives back what
// is held.
func (s *exportSource) open(ctx context.Context, f *pflag.FlagSet, files []string) (src format.Source, release func() error, err error) {
	release = func() error { return nil }
	if err := s.settle(f, files); err != nil {
		return nil, release, err
	}
	if len(files) > 0 {
		return fileDocuments(files), release, nil
	}
	since, err := parseSince(s.since, time.Now())
	if err != nil {
		return nil, release, err
	}
	if s.data != "" {
		return s.openStore(ctx, since)
	}
	src, err = s.openProxy(ctx, since)
	return src, release, err
}

// settle sees that there is one place to look, and one way of choosing. What was said on the command line wins over the
// environment, where CAPTURE_PROXY_URL often stands for other commands.
func (s *exportSource) settle(f *pflag.FlagSet, files []string) error {
	said := func(name string) bool {
		return f.Changed(name) && f.Lookup(name).Value.String() != os.Getenv(variable(name))
	}
	if len(files) > 0 || said("data") != said("url") {
		if !said("data") {
			s.data = ""
		}
		if !said("url") {
			s.url = ""
		}
	}
	places := 0
	for _, given := range []bool{len(files) > 0, s.data != "", s.url != ""} {
		if given {
			places++
		}
	}
	switch {
	case places == 0:
		return usagef("nothing to export was named: give document files, --data DIR or --url PROXY")
	case places > 1:
		return usagef("document files, --data and --url cannot be mixed: choose one")
	case len(files) > 0 && slices.ContainsFunc([]string{"session", "group", "run", "since"}, said):
		return usagef("--session, --group, --run and --since choose from a store or a proxy: name the files instead")
	case slices.Contains(files, "-"):
		return usagef("standard input cannot be read twice: name a file")
	case len(s.sessions) > 0 && (s.group != "" || s.run != "" || s.since != ""):
		return usagef("--session names sessions one by one: leave out --group, --run and --since, or --session")
	}
	return nil
}

// fileDocuments are documents on disk, one per file.
type fileDocuments []string

func (l fileDocuments) Len() int          { return len(l) }
func (l fileDocuments) Name(i int) string { return l[i] }

func (l fileDocuments) Rollout(_ context.Context, i int) (*export.Rollout, error) {
	doc, err := readDocument(l[i], nil)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // which names the file itself
		err = fmt.Errorf("%s: %w", l[i], err)
	}
	return doc, err
}

// storedDocuments are sessions of a store on disk.
type storedDocuments struct {
	log    store.Store
	ids    []string
	shared record.Shared
}

func (s *exportSource) openStore(ctx context.Context, since time.Time) (format.Source, func() error, error) {
	none := func() error { return nil }
	log, err := openData(ctx, s.data)
	if err != nil {
		return nil, none, err
	}
	ids := s.sessions
	if len(ids) == 0 {
		ids, err = listStored(ctx, log, store.Filter{Group: s.group, Run: s.run, Since: since, Limit: 500})
	}
	if err != nil {
		return nil, none, errors.Join(err, log.Close())
	}
	return &storedDocuments{log, ids, s.shared}, log.Close, nil
}

// openData opens a store to read from: a directory, or a database that proxies share.
func openData(ctx context.Context, data string) (store.Store, error) {
	if postgres.IsAddress(data) {
		return openDatabase(ctx, data)
	}
	if _, err := os.Stat(data); err != nil { // Open would make it
		return nil, err
	}
	log, err := store.Open(data, store.Options{})
	if err != nil {
		return nil, err // not log, which would be no nil
	}
	return log, nil
}

// listStored names the sessions of a store, oldest first.
func listStored(ctx context.Context, log store.Store, f store.Filter) ([]string, error) {
	var ids []string
	for {
		page, next, err := log.Sessions(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, sess := range page {
			ids = append(ids, sess.ID)
		}
		if next == "" {
			slices.Reverse(ids)
			return ids, nil
		}
		f.After = next
	}
}

func (d *storedDocuments) Len() int          { return len(d.ids) }
func (d *storedDocuments) Name(i int) string { return "session " + d.ids[i] }

func (d *storedDocuments) Rollout(ctx context.Context, i int) (*export.Rollout, error) {
	return deriveStored(ctx, d.log, d.ids[i], export.Options{Shared: d.shared, IncludeMessages: true, ProxyVersion: version()})
}

// servedDocuments are sessions of a running proxy.
type servedDocuments struct {
	client *control.Client
	ids    []string
	shared record.Shared
}

func (s *exportSource) openProxy(ctx context.Context, since time.Time) (format.Source, error) {
	client := &control.Client{URL: s.url, Key: s.key}
	ids := s.sessions
	if len(ids) == 0 {
		var err error
		if ids, err = listServed(ctx, client, control.ListOptions{Group: s.group, Run: s.run, Since: since, Limit: 500}); err != nil {
			return nil, err
		}
	}
	return &servedDocuments{client, ids, s.shared}, nil
}

// listServed names the sessions of a proxy, oldest first.
func listServed(ctx context.Context, client *control.Client, o control.ListOptions) ([]string, error) {
	var ids []string
	for {
		page, err := client.List(ctx, o)
		if err != nil {
			return nil, err
		}
		if page.Damage != "" {
			return nil, fmt.Errorf("some sessions cannot be read any more, name those to export with --session: %s", page.Damage)
		}
		for _, sess := range page.Sessions {
			ids = append(ids, sess.SessionID)
		}
		if page.Next == "" {
			slices.Reverse(ids)
			return ids, nil
		}
		o.After = page.Next
	}
}

func (d *servedDocuments) Len() int          { return len(d.ids) }
func (d *servedDocuments) Name(i int) string { return "session " + d.ids[i] }

func (d *servedDocuments) Rollout(ctx context.Context, i int) (*export.Rollout, error) {
	doc, err := d.client.ReadRollout(ctx, d.ids[i], control.DocumentOptions{IncludeMessages: true, Shared: string(d.shared)})
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", d.ids[i], err)
	}
	return doc, nil
}

// deriveStored makes a session's document from the log; calls that cannot be read any more shut its gate.
func deriveStored(ctx context.Context, log store.Store, id string, o export.Options) (*export.Rollout, error) {
	sess, err := log.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	calls, err := log.Calls(ctx, id)
	switch {
	case errors.Is(err, store.ErrDamaged) && sess.CaptureFailed == "":
		sess.CaptureFailed = err.Error()
	case err != nil && !errors.Is(err, store.ErrDamaged):
		return nil, err
	}
	return export.Build(sess, calls, o), nil
}
