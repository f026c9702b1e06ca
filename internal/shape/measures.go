package main

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"

	"github.com/goucx/goucx/internal/arch"
)

// measure is one row of the table.
type measure struct {
	name  string
	count func(t *tree) (value string, list []string)
}

var measures = []measure{
	{"lines of code outside tests", codeLines},
	{"functions per 1,000 lines of code in ucp", perThousand("ucp/")},
	{"functions per 1,000 lines of code in transports", perThousand("transports/")},
	{"functions per 1,000 lines of code in verbs/soft", perThousand("verbs/soft/")},
	{"unexported functions of at most 6 lines called once", calledOnce},
	{"methods of the largest struct of ucp, promoted ones and functions that take it", ofWorker},
	{"files of the largest folder", largestFolder},
	{"lines of the longest file", longestFile},
	{"structs of more than 3 booleans", booleans},
	{"functions of more than 5 parameters", parameters},
	{"retired words", retiredWords},
	{"share of comment in the ten hardest files", hardestFiles},
}

// hardest are the files that need the most explanation, by subject. Where several match, a
// subject moved lately; all count.
var hardest = []struct {
	subject string
	file    *regexp.Regexp
}{
	{"lane failover", regexp.MustCompile(`^ucp/(.*/)?lane_failover\.go$`)},
	{"flush against lane failover", regexp.MustCompile(`^ucp/(.*/)?flush\.go$`)},
	{"QP migration", regexp.MustCompile(`^transports/rc/migrate\.go$`)},
	{"async critical section", regexp.MustCompile(`^transports/(rc/async|internal/.*section)\.go$`)},
	{"ring publication", regexp.MustCompile(`^ucs/ring/producer\.go$`)},
	{"requester", regexp.MustCompile(`^verbs/soft/(.*/)?requester\.go$`)},
	{"responder", regexp.MustCompile(`^verbs/soft/(.*/)?responder\.go$`)},
	{"completer", regexp.MustCompile(`^verbs/soft/(.*/)?completer\.go$`)},
	{"retransmission of ud", regexp.MustCompile(`^transports/ud/arq/sender\.go$`)},
	{"connection machine", regexp.MustCompile(`^wireup/machine/step\.go$`)},
}

func codeLines(t *tree) (string, []string) {
	n, dirs := 0, map[string]int{}
	for _, f := range t.files {
		n += f.code
		dirs[f.dir] += f.code
	}
	return fmt.Sprint(n), sorted(dirs, 0)
}

// perThousand does not count methods that an interface demands.
func perThousand(dir string) func(t *tree) (string, []string) {
	return func(t *tree) (string, []string) {
		code, funcs := 0, 0
		for _, f := range t.files {
			if f.library && strings.HasPrefix(f.dir+"/", dir) {
				code += f.code
			}
		}
		for _, f := range t.functions(dir) {
			if f.Recv == nil || !t.demands[f.Name.Name] {
				funcs++
			}
		}
		return fmt.Sprintf("%.1f", 1000*float64(funcs)/float64(max(1, code))), nil
	}
}

func calledOnce(t *tree) (string, []string) {
	uses := map[string]int{} // of a name in a folder
	for _, f := range t.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				uses[f.dir+" "+id.Name]++
			}
			return true
		})
	}
	var list []string
	for _, f := range t.functions("") {
		name := f.Name.Name
		if !ast.IsExported(name) && name != "init" && name != "main" && f.lines <= 6 && uses[f.in.dir+" "+name] == 2 && !f.keptApart() {
			list = append(list, f.in.path+" "+name)
		}
	}
	return fmt.Sprint(len(list)), list
}

// ofWorker counts for each struct of ucp its methods, those of the structs that it embeds, and the
// functions that take it, and returns the largest count: moving the Worker's methods to another
// struct as a whole changes nothing.
func ofWorker(t *tree) (string, []string) {
	embedded := map[string][]string{}
	for _, f := range t.files {
		if f.dir != "ucp" {
			continue
		}
		structs(f, func(name string, s *ast.StructType) {
			embedded[name] = nil
			for _, fl := range s.Fields.List {
				if len(fl.Names) == 0 {
					embedded[name] = append(embedded[name], typeName(fl.Type))
				}
			}
		})
	}
	own := map[string]int{}
	for _, f := range t.functions("ucp/") {
		switch {
		case f.Recv != nil && f.in.dir == "ucp":
			own[f.receiver()]++
		case f.Recv == nil:
			taken := map[string]bool{}
			for _, p := range f.Type.Params.List {
				taken[typeName(p.Type)] = true
			}
			for name := range taken {
				own[name]++
			}
		}
	}
	all := map[string]int{}
	for name, inner := range embedded {
		all[name] = own[name]
		for _, e := range inner {
			all[name] += own[e]
		}
	}
	return first(sorted(all, 0)), sorted(all, 30)
}

func largestFolder(t *tree) (string, []string) {
	n := map[string]int{}
	for _, f := range t.files {
		if f.library {
			n[f.dir]++
		}
	}
	list := sorted(n, 40)
	return first(sorted(n, 0)), list
}

func longestFile(t *tree) (string, []string) {
	n := map[string]int{}
	for _, f := range t.files {
		n[f.path] = f.lines
	}
	return first(sorted(n, 0)), sorted(n, 400)
}

// booleans counts atomic ones and those of nested structs too. What a program sets or
// reads, and packets, are left out: capabilities and configuration are lists.
func booleans(t *tree) (string, []string) {
	n := map[string]int{}
	for _, f := range t.files {
		if !f.library {
			continue
		}
		structs(f, func(name string, s *ast.StructType) {
			if !regexp.MustCompile(`(Attr|Config|Caps|packet|Packet)$`).MatchString(name) {
				n[f.dir+"."+name] += countBooleans(s)
			}
		})
	}
	list := sorted(n, 4)
	return fmt.Sprint(len(list)), list
}

func countBooleans(e ast.Expr) (n int) {
	switch e := e.(type) {
	case *ast.Ident:
		if e.Name == "bool" {
			return 1
		}
	case *ast.SelectorExpr:
		if e.Sel.Name == "Bool" {
			return 1
		}
	case *ast.ArrayType:
		return countBooleans(e.Elt)
	case *ast.StructType:
		for _, f := range e.Fields.List {
			n += countBooleans(f.Type) * max(1, len(f.Names))
		}
	}
	return n
}

func parameters(t *tree) (string, []string) {
	var list []string
	for _, f := range t.functions("") {
		n := 0
		for _, p := range f.Type.Params.List {
			n += max(1, len(p.Names))
		}
		if n > 5 && (f.Recv == nil || !t.demands[f.Name.Name]) {
			list = append(list, fmt.Sprintf("%s %s: %d", f.in.path, f.Name.Name, n))
		}
	}
	return fmt.Sprint(len(list)), list
}

// retiredWords counts the lines that contain a word of internal/arch/retired.txt.
func retiredWords(t *tree) (string, []string) {
	faults, err := arch.RetiredWords(t.root)
	if err != nil {
		return "no list", nil
	}
	var list []string
	for _, f := range faults {
		list = append(list, f.String())
	}
	return fmt.Sprint(len(list)), list
}

func hardestFiles(t *tree) (string, []string) {
	all, comments, found := 0, 0, 0
	var list []string
	for _, h := range hardest {
		before := len(list)
		for _, f := range t.files {
			if h.file.MatchString(f.path) {
				all += f.code + f.comments
				comments += f.comments
				list = append(list, fmt.Sprintf("%s: %s %d %%", h.subject, f.path, 100*f.comments/(f.code+f.comments)))
			}
		}
		if len(list) == before {
			list = append(list, h.subject+": no file")
			continue
		}
		found++
	}
	return fmt.Sprintf("%d %% of %d files", 100*comments/max(1, all), found), list
}

// structs calls do for each struct type that the file declares.
func structs(f *file, do func(name string, s *ast.StructType)) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if t, ok := n.(*ast.TypeSpec); ok {
			if s, ok := t.Type.(*ast.StructType); ok {
				do(t.Name.Name, s)
			}
		}
		return true
	})
}

// sorted lists what is counted at least least times, most first.
func sorted(counts map[string]int, least int) (list []string) {
	names := make([]string, 0, len(counts))
	for name, n := range counts {
		if n >= least {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := counts[b] - counts[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		list = append(list, fmt.Sprintf("%d %s", counts[name], name))
	}
	return list
}

func first(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return list[0]
}
