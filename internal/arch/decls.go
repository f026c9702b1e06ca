package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// checkInit forbids init functions in product files: nothing registers itself, and lists are
// explicit.
func checkInit(f File) []Fault {
	if f.IsTest() {
		return nil
	}
	for _, d := range f.Syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			return []Fault{{f.Name, "func init: nothing registers itself; lists are explicit, tables are variables"}}
		}
	}
	return nil
}

// checkDocs requires a doc comment on every exported name of a product file, and on every field of
// an exported Config struct.
func checkDocs(f File) []Fault {
	if f.IsTest() || strings.HasPrefix(f.Base(), "zz_") {
		return nil
	}
	var faults []Fault
	missing := func(what, name string) {
		faults = append(faults, Fault{f.Name, fmt.Sprintf("%s %s has no doc comment", what, name)})
	}
	for _, d := range f.Syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if name, ok := exportedFunc(d); ok && d.Doc == nil {
				missing("func", name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				checkSpec(d, spec, missing)
			}
		}
	}
	return faults
}

func checkSpec(d *ast.GenDecl, spec ast.Spec, missing func(what, name string)) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		if d.Doc == nil && s.Doc == nil && s.Comment == nil {
			missing("type", s.Name.Name)
		}
		if st, ok := s.Type.(*ast.StructType); ok && strings.HasSuffix(s.Name.Name, "Config") {
			checkFields(s.Name.Name, st, missing)
		}
	case *ast.ValueSpec:
		// One comment may document a group of constants or variables.
		if d.Doc != nil || s.Doc != nil || s.Comment != nil {
			return
		}
		for _, n := range s.Names {
			if n.IsExported() {
				missing(kindOf(d.Tok), n.Name)
			}
		}
	}
}

func checkFields(typ string, st *ast.StructType, missing func(what, name string)) {
	for _, field := range st.Fields.List {
		if field.Doc != nil || field.Comment != nil {
			continue
		}
		for _, n := range field.Names {
			if n.IsExported() {
				missing("field", typ+"."+n.Name)
			}
		}
	}
}

// exportedFunc reports whether a function, or a method of an exported type, is visible outside the
// package.
func exportedFunc(d *ast.FuncDecl) (string, bool) {
	if !d.Name.IsExported() {
		return "", false
	}
	if d.Recv == nil {
		return d.Name.Name, true
	}
	typ := d.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.Name + "." + d.Name.Name, t.IsExported()
		default:
			return "", false
		}
	}
}

func kindOf(t token.Token) string {
	if t == token.CONST {
		return "const"
	}
	return "var"
}
