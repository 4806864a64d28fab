package store

import (
	"errors"
	"os"
	"syscall"
)

// datasync flushes data and size, and leaves times for later: one journal commit less than fsync.
func datasync(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
