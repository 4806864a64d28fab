package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"captureproxy/export"
	"captureproxy/validate"
	"captureproxy/validate/reconcile"
)

// reconcileWith compares a document with the harness's record at the paths, which are read as one.
func reconcileWith(doc *export.Rollout, paths []string) ([]validate.Finding, error) {
	files, err := recordFiles(paths)
	if err != nil {
		return nil, err
	}
	in := &fileChain{paths: files}
	trajectory, err := reconcile.Read(in)
	if err := errors.Join(err, in.Close()); err != nil {
		return nil, err
	}
	return reconcile.Against(doc, trajectory), nil
}

// recordFiles lists the files of a record. Of a directory it is the JSON below it: opencode's storage has a file per
// message and part, claude-code's logs a file per subagent.
func recordFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		found := len(files)
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			isRecord := slices.Contains([]string{".json", ".jsonl"}, filepath.Ext(file)) || file == path
			if err == nil && !entry.IsDir() && isRecord {
				files = append(files, file)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(files) == found {
			return nil, errors.New(path + " holds no .json or .jsonl file")
		}
	}
	return files, nil
}

// fileChain reads files one after the other, each on lines of its own, with one open at a time.
type fileChain struct {
	paths []string
	open  *os.File
}

func (c *fileChain) Read(p []byte) (int, error) {
	for {
		if c.open == nil {
			if len(c.paths) == 0 {
				return 0, io.EOF
			}
			f, err := os.Open(c.paths[0])
			if err != nil {
				return 0, err
			}
			c.open, c.paths = f, c.paths[1:]
		}
		n, err := c.open.Read(p)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		if err := c.Close(); err != nil {
			return n, err
		}
		if n < len(p) {
			return n + copy(p[n:], "\n"), nil
		}
	}
}

// Close closes the file that is open, if any.
func (c *fileChain) Close() error {
	if c.open == nil {
		return nil
	}
	err := c.open.Close()
	c.open = nil
	return err
}

// recordName is what findings of a reconciliation are about.
func recordName(paths []string) string { return "against " + strings.Join(paths, ", ") }
