package layers

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// source is one Go file, whatever its build constraints.
type source struct {
	name  string // path from the module's root, with slashes
	dir   string // the package's folder, "." for the root
	test  bool
	lines int
	tree  *ast.File
	fset  *token.FileSet
}

// load parses every Go file of a module. Folders that the go command ignores are left out.
func load(root fs.FS) ([]source, error) {
	var out []source
	fset := token.NewFileSet()
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (base == "testdata" || base == "node_modules" || base[0] == '.' || base[0] == '_') {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || base[0] == '.' || base[0] == '_' {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		out = append(out, source{
			name: name, dir: path.Dir(name), test: strings.HasSuffix(base, "_test.go"),
			lines: bytes.Count(text, []byte{'\n'}), tree: tree, fset: fset,
		})
		return nil
	})
	return out, err
}

// imported is one import of a file: the path and the name under which the file knows it.
type imported struct{ path, name string }

func (s source) imports() []imported {
	var out []imported
	for _, spec := range s.tree.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has refused such a file already
		}
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		out = append(out, imported{p, name})
	}
	return out
}
