package store

import (
	"sync"
	"syscall"
)

// FaultyDisk is a file system that fails when told to.
type FaultyDisk struct {
	osFS
	NoSync bool // flushes do nothing: for tests that open many logs

	mu    sync.Mutex
	fail  func(op string) error
	stuck chan struct{} // flushes wait for it
	ops   map[string]int
}

// The operations of a disk.
const (
	OpCreate  = "create"
	OpRemove  = "remove"
	OpWrite   = "write"
	OpSync    = "sync"
	OpSyncDir = "syncdir"
	OpTrim    = "truncate"
)

// Use returns options that put the log on the disk.
func (d *FaultyDisk) Use(o Options) Options {
	o.fs = d
	return o
}

// Fail has operations fail with the given error, those named or all; a nil error heals the disk.
func (d *FaultyDisk) Fail(err error, ops ...string) {
	d.FailBy(func(op string) error {
		for _, o := range ops {
			if o == op {
				return err
			}
		}
		if len(ops) == 0 {
			return err
		}
		return nil
	})
}

// FailBy has a function say which operation fails.
func (d *FaultyDisk) FailBy(f func(op string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = f
}

// Stick has flushes wait until the returned function is called.
func (d *FaultyDisk) Stick() (free func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	stuck := make(chan struct{})
	d.stuck = stuck
	return func() {
		d.mu.Lock()
		d.stuck = nil
		d.mu.Unlock()
		close(stuck)
	}
}

// Count returns how often an operation was done.
func (d *FaultyDisk) Count(op string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops[op]
}

func (d *FaultyDisk) check(op string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ops == nil {
		d.ops = map[string]int{}
	}
	d.ops[op]++
	if d.fail == nil {
		return nil
	}
	return d.fail(op)
}

func (d *FaultyDisk) open(path string) (file, error) {
	f, err := d.osFS.open(path)
	if err != nil {
		return nil, err
	}
	return faultyFile{f, d}, nil
}

func (d *FaultyDisk) create(path string) (file, error) {
	if err := d.check(OpCreate); err != nil {
		return nil, err
	}
	f, err := d.osFS.create(path)
	if err != nil {
		return nil, err
	}
	return faultyFile{f, d}, nil
}

func (d *FaultyDisk) remove(path string) error {
	if err := d.check(OpRemove); err != nil {
		return err
	}
	return d.osFS.remove(path)
}

func (d *FaultyDisk) syncDir(dir string) error {
	if err := d.check(OpSyncDir); err != nil || d.NoSync {
		return err
	}
	return d.osFS.syncDir(dir)
}

type faultyFile struct {
	file
	disk *FaultyDisk
}

// WriteAt writes half of what it is given when it fails, as a disk that fills up does.
func (f faultyFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.disk.check(OpWrite); err != nil {
		n, _ := f.file.WriteAt(b[:len(b)/2], off)
		return n, err
	}
	return f.file.WriteAt(b, off)
}

func (f faultyFile) datasync() error {
	f.disk.mu.Lock()
	stuck := f.disk.stuck
	f.disk.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	if err := f.disk.check(OpSync); err != nil || f.disk.NoSync {
		return err
	}
	return f.file.datasync()
}

func (f faultyFile) Truncate(size int64) error {
	if err := f.disk.check(OpTrim); err != nil {
		return err
	}
	return f.file.Truncate(size)
}

// The errors of failing disks.
const (
	ENOSPC = syscall.ENOSPC
	EIO    = syscall.EIO
	EROFS  = syscall.EROFS
)
