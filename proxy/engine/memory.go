package engine

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"captureproxy/internal/record"
)

// Memory keeps what was measured of engines in a file, for the processes to come. An engine is known there by a keyed hash
// of its URL, model and credential, never by the credential. It is safe for concurrent use; a nil Memory remembers nothing.
type Memory struct {
	path   string
	failed func(error)

	mu      sync.Mutex
	file    memoryFile
	changed bool
	writing bool
	writes  sync.WaitGroup
}

// memoryFormat is the version of the file. One of another version is forgotten: everything in it can be measured again.
const memoryFormat = 1

// maxRemembered bounds the engines in the file; those measured longest ago go first.
const maxRemembered = 256

type memoryFile struct {
	Format  int                `json:"format"`
	Salt    []byte             `json:"salt"`
	Engines map[string]recalls `json:"engines"`
}

type recalls struct {
	Measured time.Time `json:"measured"`
	Profile  Profile   `json:"profile"`
}

// OpenMemory reads the file at path, which need not exist. failed is told when the file cannot be written later; calls go
// on without.
func OpenMemory(path string, failed func(error)) (*Memory, error) {
	m := &Memory{path: path, failed: failed}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("reading what is known of engines: %w", err)
	}
	if json.Unmarshal(data, &m.file) != nil || m.file.Format != memoryFormat || len(m.file.Salt) < sha256.Size {
		m.file = memoryFile{Format: memoryFormat, Salt: make([]byte, sha256.Size)}
		if _, err := rand.Read(m.file.Salt); err != nil {
			return nil, fmt.Errorf("a key for what is known of engines: %w", err)
		}
	}
	if m.file.Engines == nil {
		m.file.Engines = map[string]recalls{}
	}
	return m, nil
}

// key is the name of an engine in the file.
func (m *Memory) key(u *Upstream) string {
	mac := hmac.New(sha256.New, m.file.Salt)
	for _, part := range []string{u.URL(), u.model, u.provider, string(u.forced), u.authHeader, u.key} {
		fmt.Fprintf(mac, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

func (m *Memory) get(u *Upstream) (Profile, bool) {
	if m == nil {
		return Profile{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.file.Engines[m.key(u)]
	return r.Profile, ok
}

// put remembers a profile. The file is written beside the caller, who is a model call.
func (m *Memory) put(u *Upstream, p *Profile) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.file.Engines[m.key(u)] = recalls{Measured: time.Now().UTC(), Profile: *p}
	m.changed = true
	if !m.writing {
		m.writing = true
		m.writes.Go(m.write)
	}
}

func (m *Memory) forget(u *Upstream) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.file.Engines, m.key(u))
}

// write writes until nothing is new.
func (m *Memory) write() {
	for {
		m.mu.Lock()
		if !m.changed {
			m.writing = false
			m.mu.Unlock()
			return
		}
		m.changed = false
		m.bound()
		data, err := json.MarshalIndent(m.file, "", " ")
		m.mu.Unlock()
		if err == nil {
			err = replaceFile(m.path, append(data, '\n'))
		}
		if err != nil && m.failed != nil {
			m.failed(fmt.Errorf("writing what is known of engines: %w", err))
		}
	}
}

func (m *Memory) bound() {
	if len(m.file.Engines) <= maxRemembered {
		return
	}
	keys := make([]string, 0, len(m.file.Engines))
	for key := range m.file.Engines {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(m.file.Engines[a].Measured.Compare(m.file.Engines[b].Measured), cmp.Compare(a, b))
	})
	for _, key := range keys[:len(keys)-maxRemembered] {
		delete(m.file.Engines, key)
	}
}

// replaceFile puts a file in place of another in one step.
func replaceFile(path string, data []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.new") // readable by the owner only
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Close waits until everything is written.
func (m *Memory) Close() {
	if m != nil {
		m.writes.Wait()
	}
}

// remember keeps a measured profile. One that says that the engine answers nothing is no knowledge.
func (u *Upstream) remember(p *Profile) {
	switch {
	case u.memory == nil:
	case !p.Measured:
		u.memory.forget(u)
	case p.Served != "" && (p.Level != record.LevelText || p.ToolSupport):
		u.memory.put(u, p)
	}
}

// recall returns what an earlier process measured, if the engine is still the same as far as it says: its models, its
// version, and what its logprobs describe, which a flag of the server changes. nil when it is to be measured anew.
func (u *Upstream) recall(ctx context.Context) *Profile {
	p, ok := u.memory.get(u)
	if !ok {
		return nil
	}
	list, err := u.list(ctx)
	if err != nil || !slices.Equal(list.names, p.Models) {
		return nil
	}
	if len(p.Native) == 0 && u.version(ctx) != p.Version {
		return nil
	}
	if mode := p.LogprobsMode; p.Level != record.LevelText && u.logprobsMode(ctx, &p) != mode {
		return nil
	}
	p.Measured, p.Recalled = true, true
	return &p
}

// doubt makes a profile that was only recalled one to be measured, since the engine contradicts it.
func (p *Profile) doubt() {
	if p.Recalled {
		p.Measured, p.Recalled = false, false
	}
}
