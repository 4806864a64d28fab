// Package layers holds the project to its own architecture: what may import what, which packages are pure, how long a
// file gets. ARCHITECTURE.md says it in words, rules_test.go in tables; change both together.
package layers

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

type check func([]source) []string

var checks = map[string]check{
	"order": checkOrder, "pure": checkPure, "helpers": checkHelpers, "files": checkFiles, "comments": checkComments,
}

func TestProject(t *testing.T) {
	files, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("found %d Go files: is this the module's root?", len(files))
	}
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			for _, wrong := range check(files) {
				t.Error(wrong)
			}
		})
	}
}

// TestChecksCanFail shows each check something that it must refuse, and something close by that it must not.
func TestChecksCanFail(t *testing.T) {
	long := "package export\n" + strings.Repeat("\n", maxLines)
	for _, c := range []struct {
		name, check, file, text, want string
	}{
		{"upwards", "order", "graph/a.go", `package graph; import _ "captureproxy/export"`, "does not stand below graph"},
		{"sideways", "order", "store/a.go", `package store; import _ "captureproxy/graph"`, "does not stand below store"},
		{"between edges", "order", "proxy/engine/a.go", `package engine; import _ "captureproxy/proxy/session"`, "does not stand below"},
		{"into a command", "order", "proxy/a.go", `package proxy; import _ "captureproxy/cmd/capture-proxy"`, "does not stand below"},
		{"behind a build tag", "order", "graph/a.go", "//go:build e2e\n\npackage graph; import _ \"captureproxy/store\"", "does not stand below"},
		{"no place", "order", "misc/a.go", `package misc`, "no place"},
		{"downwards", "order", "export/a.go", `package export; import _ "captureproxy/graph"`, ""},
		{"a folder's package", "order", "cmd/x/sub/a.go", `package sub; import _ "captureproxy/proxy/ui"`, ""},
		{"a test's fake", "order", "proxy/a_test.go", `package proxy; import _ "captureproxy/internal/fakeengine"`, ""},
		{"HTTP", "pure", "export/a.go", `package export; import _ "net/http"`, "export is pure"},
		{"a database", "pure", "graph/a.go", `package graph; import _ "database/sql"`, "graph is pure"},
		{"a clock", "pure", "validate/a.go", `package validate; import "time"; var t = time.Now()`, "no clock"},
		{"a renamed clock", "pure", "validate/a.go", `package validate; import x "time"; var t = x.Since`, "no clock"},
		{"a time", "pure", "validate/a.go", `package validate; import "time"; var t time.Time`, ""},
		{"the store's clock", "pure", "store/a.go", `package store; import "time"; var t = time.Now()`, ""},
		{"a recording at work", "helpers", "proxy/a.go", `package proxy; import _ "captureproxy/internal/wiretest"`, "tests only"},
		{"a recording in a test", "helpers", "proxy/a_test.go", `package proxy; import _ "captureproxy/internal/wiretest"`, ""},
		{"a long file", "files", "export/a.go", long, "more than one job"},
		{"a long test", "files", "export/a_test.go", long, ""},
		{"init", "files", "export/a.go", `package export; func init() {}`, "init function"},
		{"a method called init", "files", "export/a.go", `package export; type t int; func (t) init() {}`, ""},
		{"no comment", "comments", "export/a.go", `package export`, "no package comment"},
		{"a comment", "comments", "export/a.go", "// Package export writes.\npackage export", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, err := load(fstest.MapFS{c.file: {Data: []byte(c.text)}})
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(checks[c.check](files), "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
