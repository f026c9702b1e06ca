package arch

import (
	"fmt"
	"strings"
)

// checkImports checks a package's imports against the tables.
func checkImports(p *Package, module string, table []Layer) []Fault {
	layer, ok := layerOf(table, p.Path)
	if !ok {
		return []Fault{{p.Path, "no row in the import table takes this package; add one, with its reason"}}
	}
	var faults []Fault
	for _, f := range p.Files {
		for _, imp := range f.Imports {
			if why := checkEdge(layer, p.Path, f, imp, module); why != "" {
				faults = append(faults, Fault{f.Name, why})
			}
		}
	}
	return faults
}

// checkEdge returns the reason why the file must not have this import, or "".
func checkEdge(layer Layer, pkg string, f File, imp Import, module string) string {
	for _, b := range Bans {
		if under(b.Import, imp.Path) && !b.Except(pkg, f.Base()) {
			return fmt.Sprintf("imports %s: %s", imp.Path, b.Reason)
		}
	}
	rel, own := below(module, imp.Path)
	switch {
	case own:
		return checkOwn(layer, pkg, f, imp, rel)
	case !strings.Contains(firstElement(imp.Path), "."):
		return "" // the standard library
	case underAny(layer.External, imp.Path), f.IsTest() && under(testify, imp.Path):
		return ""
	default:
		return fmt.Sprintf("%s imports %s: %s; another dependency needs a decision record", pkg, imp.Path, layer.Reason)
	}
}

// checkOwn checks an import of this module's package at path rel.
func checkOwn(layer Layer, pkg string, f File, imp Import, rel string) string {
	switch {
	case imp.Blank && !f.IsTest():
		return fmt.Sprintf("imports %s for its side effects: nothing registers itself", rel)
	case matches("cmd/...", rel) && !matches("cmd/...", pkg):
		return fmt.Sprintf("imports %s: nothing imports a command", rel)
	case f.IsTest(): // a test may import every layer
		return ""
	case matches("test/...", rel) && !matches("test/...", pkg):
		return fmt.Sprintf("imports %s: nothing stands on the whole-program tests", rel)
	case matchesAny(layer.May, rel):
		return ""
	default:
		return fmt.Sprintf("%s imports %s: %s", pkg, rel, layer.Reason)
	}
}

// below returns a package's path below the module's root, "." for the root.
func below(module, importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	rel, ok := strings.CutPrefix(importPath, module+"/")
	return rel, ok
}

// under reports whether an import path equals root or is below it. A restricted package of the
// standard library does not restrict the packages below it: math/rand is not math/rand/v2.
func under(root, importPath string) bool {
	if !strings.Contains(firstElement(root), ".") {
		return importPath == root
	}
	return importPath == root || strings.HasPrefix(importPath, root+"/")
}

func underAny(roots []string, importPath string) bool {
	for _, r := range roots {
		if under(r, importPath) {
			return true
		}
	}
	return false
}

func firstElement(importPath string) string {
	first, _, _ := strings.Cut(importPath, "/")
	return first
}
