package arch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Fault is one violation of a rule: its location and the rule's reason.
type Fault struct{ Where, Why string }

// String returns "where: why", one line.
func (f Fault) String() string { return f.Where + ": " + f.Why }

// Package is a directory of Go files with everything that the rules check. All files are parsed,
// whatever their build constraints.
type Package struct {
	Path  string // below the module's root, "." for the root
	Name  string
	Files []File
	// Assembly lists the base names of the .s files.
	Assembly []string
}

// File is one parsed Go file; Name is its path below the module's root.
type File struct {
	Name    string
	Lines   int
	Imports []Import
	Syntax  *ast.File
}

// Import is one import declaration.
type Import struct {
	Path  string
	Blank bool // import _ "path"
}

// Base returns the file's name without its directory.
func (f File) Base() string { return filepath.Base(f.Name) }

// IsTest reports whether the file is a test file.
func (f File) IsTest() bool { return strings.HasSuffix(f.Name, "_test.go") }

// Load lists the packages of the module in dir, and of the modules nested in it, and parses their
// files. It also returns the module's path, below which a nested module has the path of its folder.
func Load(dir string) (module string, pkgs []*Package, err error) {
	module, pkgs, err = loadModule(dir, "")
	if err != nil {
		return "", nil, err
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && slices.Contains([]string{".git", "testdata", "bin"}, d.Name()):
			return filepath.SkipDir
		case d.Name() != "go.mod" || filepath.Dir(path) == filepath.Clean(dir):
			return nil
		}
		_, nested, err := loadModule(filepath.Dir(path), module)
		pkgs = append(pkgs, nested...)
		return err
	})
	return module, pkgs, err
}

// loadModule lists the packages of one module with the go command. Their paths are those below the
// module root, "" for the listed one itself.
func loadModule(dir, root string) (module string, pkgs []*Package, err error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Module", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", nil, fmt.Errorf("go list in %s: %w: %s", dir, err, stderr.Bytes())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l struct {
			ImportPath, Dir string
			Module          struct{ Path string }
		}
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return module, pkgs, nil
		} else if err != nil {
			return "", nil, fmt.Errorf("read go list: %w", err)
		}
		module = l.Module.Path
		rel, inside := below(cmp.Or(root, module), l.ImportPath)
		if !inside {
			return "", nil, fmt.Errorf("%s: module %s is nested in %s and not named so", dir, module, root)
		}
		p, err := parseDir(l.Dir, rel)
		if err != nil {
			return "", nil, err
		}
		pkgs = append(pkgs, p)
	}
}

// parseDir parses the files of one directory, without subdirectories.
func parseDir(dir, rel string) (*Package, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	p := &Package{Path: rel}
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".s", ".S":
			p.Assembly = append(p.Assembly, e.Name())
		case ".go":
			src, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			if err := p.addFile(filepath.Join(rel, e.Name()), src); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

func (p *Package) addFile(name string, src []byte) error {
	syntax, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments)
	if err != nil {
		return err
	}
	f := File{Name: name, Lines: bytes.Count(src, []byte("\n")), Syntax: syntax}
	for _, spec := range syntax.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
		}
		f.Imports = append(f.Imports, Import{path, spec.Name != nil && spec.Name.Name == "_"})
	}
	if p.Name == "" || !f.IsTest() {
		p.Name = syntax.Name.Name
	}
	p.Files = append(p.Files, f)
	return nil
}
