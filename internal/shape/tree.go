package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// tree is the module without its tests.
type tree struct {
	root    string
	fset    *token.FileSet
	files   []*file
	demands map[string]bool // methods that an interface of the module, or of Go, demands
}

// file is one Go file.
type file struct {
	path, dir      string
	ast            *ast.File
	lines          int // all
	code, comments int // lines that hold code, or comment alone
	library        bool
}

// function is a function with a body.
type function struct {
	*ast.FuncDecl
	in    *file
	lines int // of the body
}

// tools are the folders that are no part of the library.
var tools = regexp.MustCompile(`^(internal|cmd|perf|examples|bench|test)(/|$)|test$`)

func readTree(root string) (*tree, error) {
	t := &tree{root: root, fset: token.NewFileSet(), demands: map[string]bool{
		"String": true, "Error": true, "Unwrap": true, "Is": true, "Close": true, "Write": true, "Read": true,
	}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "tools" || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		a, err := parser.ParseFile(t.fset, path, src, parser.ParseComments)
		if err != nil || ast.IsGenerated(a) {
			return err
		}
		from, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f := &file{path: filepath.ToSlash(from), dir: filepath.ToSlash(filepath.Dir(from)), ast: a}
		f.library = !tools.MatchString(f.dir)
		f.lines, f.code, f.comments = countLines(src)
		t.files = append(t.files, f)
		return nil
	})
	for _, f := range t.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if i, ok := n.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					for _, name := range m.Names {
						t.demands[name.Name] = true
					}
				}
			}
			return true
		})
	}
	return t, err
}

// countLines counts lines, those with code, and those with nothing but comment.
func countLines(src []byte) (lines, code, comments int) {
	const isCode, isComment = 1, 2
	fset := token.NewFileSet()
	f := fset.AddFile("", fset.Base(), len(src))
	var s scanner.Scanner
	s.Init(f, src, nil, scanner.ScanComments)
	kinds := map[int]int{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}
		kind := isCode
		if tok == token.COMMENT {
			kind = isComment
		}
		for k := range strings.Count(lit, "\n") + 1 {
			kinds[f.Line(pos)+k] |= kind
		}
	}
	for _, k := range kinds {
		if k&isCode != 0 {
			code++
		} else {
			comments++
		}
	}
	return bytes.Count(src, []byte("\n")), code, comments
}

// functions returns those of the library's files whose folder begins with dir.
func (t *tree) functions(dir string) (all []function) {
	for _, f := range t.files {
		if !f.library || !strings.HasPrefix(f.dir+"/", dir) {
			continue
		}
		for _, d := range f.ast.Decls {
			if fd, ok := d.(*ast.FuncDecl); ok && fd.Body != nil {
				n := t.fset.Position(fd.Body.End()).Line - t.fset.Position(fd.Body.Pos()).Line - 1
				all = append(all, function{fd, f, max(1, n)})
			}
		}
	}
	return all
}

// receiver returns the name of the type that the function is a method of, or "".
func (f function) receiver() string {
	if f.Recv == nil {
		return ""
	}
	return typeName(f.Recv.List[0].Type)
}

// typeName returns the name of a type of the same package, also behind a pointer.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	}
	return ""
}

var apart = regexp.MustCompile(`^//(go|gcassert|hot):`)

// keptApart reports whether a function stands alone for a reason of the compiler, the
// processor or the operating system.
func (f function) keptApart() bool {
	if f.Doc != nil {
		for _, c := range f.Doc.List {
			if apart.MatchString(c.Text) {
				return true
			}
		}
	}
	name := strings.TrimSuffix(filepath.Base(f.in.path), ".go")
	for _, suffix := range []string{"_unsafe", "_linux", "_other", "_darwin", "_amd64", "_arm64", "_race", "_norace"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}
