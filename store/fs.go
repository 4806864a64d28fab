package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// fsys is the few operations that the log asks of a file system; tests put failing disks behind it.
type fsys interface {
	// open opens a file for reading and writing; create makes a new one and fails where one is.
	open(path string) (file, error)
	create(path string) (file, error)
	remove(path string) error
	// list returns the names in a directory, sorted.
	list(dir string) ([]string, error)
	// syncDir makes the names in a directory durable.
	syncDir(dir string) error
}

// file is one open segment.
type file interface {
	ReadAt(b []byte, off int64) (int, error)
	WriteAt(b []byte, off int64) (int, error)
	Truncate(size int64) error
	Close() error
	// datasync makes what was written durable, and the size with it.
	datasync() error
	size() (int64, error)
}

// osFS is the real one.
type osFS struct{}

func (osFS) open(path string) (file, error) {
	return openFile(path, os.O_RDWR)
}

func (osFS) create(path string) (file, error) {
	return openFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func openFile(path string, flag int) (file, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) remove(path string) error { return os.Remove(path) }

func (osFS) list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type osFile struct{ *os.File }

func (f osFile) datasync() error { return datasync(f.File) }

func (f osFile) size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// makeDir creates the store's directory, private to its owner, and makes its name durable.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "open store", Path: dir, Err: errors.New("not a directory")}
		}
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return osFS{}.syncDir(filepath.Dir(filepath.Clean(dir)))
}
