package arch

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Limits for a product file in lines: above the first it is reported, above the second it fails.
const (
	longFile    = 400
	tooLongFile = 500
)

// vagueNames do not describe the content of a package.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "types"}

// assemblyHome is the only package with assembly: the cycle counter and the pause instruction,
// each with a Go implementation beside it.
const assemblyHome = "ucs/cpu"

// checkPackage checks a package against the rules on names, documents, assembly and registration.
func checkPackage(p *Package) []Fault {
	var faults []Fault
	for _, name := range []string{path.Base(p.Path), p.Name} {
		if slices.Contains(vagueNames, name) {
			faults = append(faults, Fault{p.Path, fmt.Sprintf("a package named %s says nothing of what it holds", name)})
			break
		}
	}
	if !hasPackageComment(p) {
		faults = append(faults, Fault{p.Path, "no package comment: describe in doc.go what it is, which packages use it, and its invariants"})
	}
	faults = append(faults, checkAssembly(p)...)
	for _, f := range p.Files {
		faults = append(faults, checkInit(f)...)
		faults = append(faults, checkLength(f)...)
		if p.Name != "main" {
			faults = append(faults, checkDocs(f)...)
		}
	}
	return faults
}

func hasPackageComment(p *Package) bool {
	tests := true
	for _, f := range p.Files {
		tests = tests && f.IsTest()
		if f.Syntax.Doc != nil && !f.IsTest() {
			return true
		}
	}
	return tests // a directory with only tests needs none
}

// archSuffix is the part in which cycles_amd64.s and cycles_arm64.s differ.
var archSuffix = regexp.MustCompile(`(_[a-z0-9]+)?\.[sS]$`)

func checkAssembly(p *Package) []Fault {
	if len(p.Assembly) > 0 && p.Path != assemblyHome {
		return []Fault{{p.Path, "assembly stands only in " + assemblyHome + "; more needs a decision record, a Go twin and a differential fuzz test"}}
	}
	families := map[string]bool{}
	for _, name := range p.Assembly {
		families[archSuffix.ReplaceAllString(name, "")] = true
	}
	if len(families) > 1 {
		return []Fault{{p.Path, "more than one family of assembly files: " + strings.Join(p.Assembly, ", ")}}
	}
	return nil
}

func checkLength(f File) []Fault {
	if f.Lines <= tooLongFile || f.IsTest() || strings.HasPrefix(f.Base(), "zz_") {
		return nil
	}
	return []Fault{{f.Name, fmt.Sprintf("%d lines; above %d a file holds two things: split it", f.Lines, tooLongFile)}}
}

// LongFiles returns the product files that are close to the limit.
func LongFiles(pkgs []*Package) []Fault {
	var long []Fault
	for _, p := range pkgs {
		for _, f := range p.Files {
			if f.Lines > longFile && !f.IsTest() && !strings.HasPrefix(f.Base(), "zz_") {
				long = append(long, Fault{f.Name, fmt.Sprintf("%d lines; aim at 60 to 400", f.Lines)})
			}
		}
	}
	return long
}
