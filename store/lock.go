package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockDir takes the store's directory for this process; two writers would overwrite each other's frames. The lock goes
// away with the process, however it ends.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "LOCK")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: %w; the directory must be writable by this user", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		closeErr := f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("store: %s is in use by another capture-proxy; stop that one, or give this one another --data directory", dir)
		}
		return nil, errors.Join(fmt.Errorf("store: cannot lock %s: %w", path, err), closeErr)
	}
	return f, nil
}
