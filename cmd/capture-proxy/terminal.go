package main

import (
	"os"
	"syscall"
	"unsafe"
)

// isTerminal reports whether a file is a terminal: only those have a window size.
func isTerminal(f *os.File) bool {
	var size [4]uint16
	return ioctl(f, syscall.TIOCGWINSZ, unsafe.Pointer(&size))
}

// ownsTerminal reports whether the keys of a terminal reach this process's group, and so its children too.
func ownsTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	var foreground int32
	return ioctl(tty, syscall.TIOCGPGRP, unsafe.Pointer(&foreground)) && int(foreground) == syscall.Getpgrp()
}

func ioctl(f *os.File, request uintptr, result unsafe.Pointer) bool {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(result))
	return errno == 0
}
