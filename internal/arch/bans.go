package arch

import (
	"path"
	"strings"
)

// Ban restricts an import to the packages and files that need it.
type Ban struct {
	Import string
	// Except reports whether a file may have the import: pkg is the package's path below the
	// module's root, file the base name.
	Except func(pkg, file string) bool
	Reason string
}

// Bans is the table of restricted imports, for product and test files.
var Bans = []Ban{
	{"unsafe", unsafeFile, "unsafe stands only in files named *_unsafe*.go, which hold no policy"},
	{"C", inPackage("verbs/ibv"), "cgo stands only in verbs/ibv, so that CGO_ENABLED=0 builds all the rest"},
	{"math/rand", nowhere, "identifiers come from crypto/rand, seeds in tests from math/rand/v2"},
	{"math/rand/v2", forTests, "identifiers come from crypto/rand; only tests and the simulator draw from a seed"},
	{"testing", forTests, "a product binary carries no test framework"},
	{testify, forTests, "a product binary carries no test framework"},
}

func nowhere(string, string) bool { return false }

func inPackage(p string) func(pkg, file string) bool {
	return func(pkg, _ string) bool { return pkg == p }
}

func unsafeFile(_, file string) bool { return strings.Contains(file, "_unsafe") }

// forTests matches test files and the packages that exist for tests.
func forTests(pkg, file string) bool {
	if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(path.Base(pkg), "test") {
		return true
	}
	return matches("internal/sim/...", pkg)
}
