package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// policyFile holds the version of the weights that are live. It stands beside the segments: it is one number, replaced as a
// whole, and of no session.
const policyFile = "policy.json"

type policyRecord struct {
	Version *int64 `json:"version"`
}

// SetPolicy notes durably which weights are live.
func (l *Log) SetPolicy(_ context.Context, version int64) error {
	l.policy.Lock()
	defer l.policy.Unlock()
	if l.queue.isClosed() {
		return fmt.Errorf("store: %w", ErrClosed)
	}
	text, err := json.Marshal(policyRecord{&version})
	if err == nil {
		err = replaceDurably(filepath.Join(l.dir, policyFile), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("store: cannot note the policy's version: %w", err)
	}
	return nil
}

// Policy tells which weights are live, nil when nobody has said.
func (l *Log) Policy(context.Context) (*int64, error) {
	l.policy.Lock()
	defer l.policy.Unlock()
	path := filepath.Join(l.dir, policyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var p policyRecord
	if err == nil {
		if err = json.Unmarshal(text, &p); err == nil && p.Version == nil {
			err = errors.New("it has no version")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("store: %s does not tell the policy's version: %w; remove the file and name the version again", path, err)
	}
	return p.Version, nil
}

// replaceDurably puts a file in place of another: after a crash there is the one or the other, whole.
func replaceDurably(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // readable by the owner only
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return osFS{}.syncDir(dir)
}
