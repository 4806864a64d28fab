package layers

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// module is the path under which go.mod names the packages of this project.
const module = "captureproxy"

// layer is a package, or with a trailing "/..." a folder of them, and what it may import of this module. A package
// takes the first line that fits it.
type layer struct {
	dir  string
	uses []string
}

// The house, bottom up. A package that has no line here fails the test: give it a place before it grows roots.
var house = []layer{
	{"internal/record", nil},
	{"internal/jsonscan", nil},
	{"internal/wiretest", nil},
	{"internal/layers", nil},
	{"internal/pgtest", nil},
	{"tokenize", nil},
	{"graph", []string{"internal/record"}},
	{"validate", []string{"internal/record", "graph"}},
	{"export", []string{"internal/record", "graph", "validate"}},
	{"export/...", []string{"internal/record", "graph", "validate", "export"}},
	{"validate/reconcile", []string{"internal/record", "graph", "validate", "export"}},
	{"store", []string{"internal/record"}},
	{"store/...", []string{"internal/record", "store"}},
	{"internal/fakeengine", []string{"tokenize"}},
	{"proxy/continuity", []string{"internal/record", "internal/jsonscan", "graph"}},
	{"proxy/dialect", below},
	{"proxy/engine", below},
	{"proxy/secret", nil},
	{"proxy/events", []string{"internal/record"}},
	{"proxy/session", append([]string{"proxy/continuity", "proxy/dialect", "proxy/engine", "proxy/events"}, below...)},
	{"proxy/control", append([]string{"proxy/dialect", "proxy/engine", "proxy/events", "proxy/secret", "proxy/session"}, below...)},
	{"proxy/webhook", append([]string{"proxy/secret", "proxy/session"}, below...)},
	{"proxy/ui", append([]string{"proxy/events", "proxy/session", "proxy/control", "export/show"}, below...)},
	{"proxy", append([]string{"proxy/continuity", "proxy/dialect", "proxy/engine", "proxy/session"}, below...)},
	{"internal/chaos", nil},
	{"proxy/metrics", []string{"internal/record", "proxy"}},
	{"proxy/tracing", []string{"internal/record", "proxy"}},
	{"internal/bench", []string{"internal/record", "graph", "validate", "export", "store", "proxy/control", "proxy/dialect", "proxy/engine", "proxy/session"}},
	{"internal/e2e", []string{"internal/record", "graph", "validate", "export"}},
	{"cmd/...", append([]string{"cmd/...", "proxy", "proxy/...", "store/postgres", "export/...", "validate/reconcile", "internal/fakeengine", "internal/bench"}, below...)},
}

// below is what the edge stands on.
var below = []string{"internal/record", "internal/jsonscan", "graph", "validate", "export", "store", "tokenize"}

// pure lists the packages that know no HTTP, no database, no file, no clock and no chance: the same log gives the same
// document, byte for byte.
var pure = []string{"internal/record", "internal/jsonscan", "graph", "validate", "export", "validate/reconcile", "proxy/continuity"}

// impure are the standard library's packages that pure ones keep away from.
var impure = []string{"net", "net/...", "database/...", "os", "os/...", "syscall", "math/rand", "math/rand/...", "crypto/rand"}

// clock are the names of package time that ask what time it is, or wait.
var clock = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}

// maxLines is the length at which a file does more than one job.
const maxLines = 600

func fits(pattern, dir string) bool {
	if folder, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(dir, folder+"/")
	}
	return pattern == dir
}

func fitsAny(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return fits(p, dir) })
}

// checkOrder holds what is compiled into the program to the house. Tests may reach for a fake or a recording.
func checkOrder(files []source) (wrong []string) {
	for _, f := range files {
		if f.test {
			continue
		}
		at := slices.IndexFunc(house, func(l layer) bool { return fits(l.dir, f.dir) })
		if at < 0 {
			wrong = append(wrong, fmt.Sprintf("%s: the package %s has no place in the layers: add a line", f.name, f.dir))
			continue
		}
		for _, i := range f.imports() {
			dir, ours := strings.CutPrefix(i.path, module+"/")
			if ours && !fitsAny(house[at].uses, dir) {
				wrong = append(wrong, fmt.Sprintf("%s imports %s, which does not stand below %s", f.name, dir, f.dir))
			}
		}
	}
	return wrong
}

// checkPure looks for the outside world in the packages that must not know it.
func checkPure(files []source) (wrong []string) {
	for _, f := range files {
		if f.test || !slices.Contains(pure, f.dir) {
			continue
		}
		timeName := ""
		for _, i := range f.imports() {
			if fitsAny(impure, i.path) {
				wrong = append(wrong, fmt.Sprintf("%s imports %s: %s is pure", f.name, i.path, f.dir))
			}
			if i.path == "time" {
				timeName = i.name
			}
		}
		if timeName == "" {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == timeName && slices.Contains(clock, sel.Sel.Name) {
				wrong = append(wrong, fmt.Sprintf("%s uses time.%s: %s has no clock, take the time as a value", f.fset.Position(n.Pos()), sel.Sel.Name, f.dir))
			}
			return true
		})
	}
	return wrong
}

// checkHelpers keeps what only tests need out of the program.
func checkHelpers(files []source) (wrong []string) {
	helpers := []string{"internal/wiretest", "internal/pgtest", "store/storetest"}
	for _, f := range files {
		if f.test || slices.Contains(helpers, f.dir) {
			continue
		}
		for _, i := range f.imports() {
			dir, ours := strings.CutPrefix(i.path, module+"/")
			if i.path == "testing" || ours && slices.Contains(helpers, dir) {
				wrong = append(wrong, fmt.Sprintf("%s imports %s, which is for tests only", f.name, i.path))
			}
		}
	}
	return wrong
}

// checkFiles looks at each file by itself: its length, and whether it runs code before main does.
func checkFiles(files []source) (wrong []string) {
	for _, f := range files {
		if !f.test && f.lines > maxLines {
			wrong = append(wrong, fmt.Sprintf("%s has %d lines, more than %d: it does more than one job", f.name, f.lines, maxLines))
		}
		for _, d := range f.tree.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				wrong = append(wrong, fmt.Sprintf("%s has an init function: construct things where they are used", f.fset.Position(fn.Pos())))
			}
		}
	}
	return wrong
}

// checkComments asks every package for a comment that a stranger can start from.
func checkComments(files []source) (wrong []string) {
	said, dirs := map[string]bool{}, []string{}
	for _, f := range files {
		if !slices.Contains(dirs, f.dir) {
			dirs = append(dirs, f.dir)
		}
		said[f.dir] = said[f.dir] || f.tree.Doc != nil
	}
	for _, dir := range dirs {
		if !said[dir] {
			wrong = append(wrong, fmt.Sprintf("%s has no package comment", dir))
		}
	}
	return wrong
}
