package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestPlain(t *testing.T) {
	for foreign, want := range map[string]string{
		"grüße 日本語": "grüße 日本語", "two\nlines\tand\rmore": "two lines and more", "\x1b[2J\x07": "\ufffd[2J\ufffd", "a\u202eb": "a\ufffdb", "\u009bm": "\ufffdm",
	} {
		if got := plain(foreign); got != want {
			t.Errorf("%q became %q, want %q", foreign, got, want)
		}
	}
}

// A file that is written again is the old one or the new one, never a part.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rollout.json")
	write := func(text string, failure error) error {
		return writeFile(path, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return errors.Join(err, failure)
		})
	}
	if err := write("whole", nil); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := write("part", broken); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "whole" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
}

// A pipe stands for /dev/null here: a test that fails must not take that away.
func TestWriteFileKeepsDevices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0) // so that opening it for writing does not wait for a reader
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close() //nolint:errcheck // only read
	if err := writeFile(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "whole")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Fatalf("the pipe became %v, %v", info, err)
	}
	got := make([]byte, len("whole"))
	if _, err := io.ReadFull(pipe, got); err != nil || string(got) != "whole" {
		t.Errorf("%q went into it, %v", got, err)
	}
}
