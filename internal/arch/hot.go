package arch

import (
	"go/ast"
	"strings"
)

// A hot function names its benchmarks in a directive, which godoc does not show. A name may go on
// with the path of a sub-benchmark, which is not checked.
const (
	hotDirective = "//hot:bench "
	hotComment   = "// hot: Benchmark"
)

// testFuncs returns the names of all functions in the test files of the module.
func testFuncs(pkgs []*Package) map[string]bool {
	names := map[string]bool{}
	for _, p := range pkgs {
		for _, f := range p.Files {
			for _, d := range f.Syntax.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && f.IsTest() && fn.Recv == nil {
					names[fn.Name.Name] = true
				}
			}
		}
	}
	return names
}

// checkHot requires that each benchmark that a directive names is one of tests.
func checkHot(f File, tests map[string]bool) []Fault {
	var faults []Fault
	for _, group := range f.Syntax.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, hotComment) {
				faults = append(faults, Fault{f.Name, c.Text + ": write it as a directive, " + hotDirective + "BenchmarkName"})
			}
			names, found := strings.CutPrefix(c.Text, hotDirective)
			if !found {
				continue
			}
			for name := range strings.FieldsSeq(names) {
				if top, _, _ := strings.Cut(name, "/"); !strings.HasPrefix(top, "Benchmark") || !tests[top] {
					faults = append(faults, Fault{f.Name, "the module has no benchmark " + name})
				}
			}
		}
	}
	return faults
}
