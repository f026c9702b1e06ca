package arch

import (
	"path"
	"strings"
)

// Ban restricts one import to the places where it has a reason to stand.
type Ban struct {
	Import string
	// Except reports whether the file may have it nevertheless: pkg is the
	// package's path below the module's root, file the base name.
	Except func(pkg, file string) bool
	Reason string
}

// Bans is the table of restricted imports, in product and test files alike.
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

// forTests takes test files and the packages that exist for tests.
func forTests(pkg, file string) bool {
	if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(path.Base(pkg), "test") {
		return true
	}
	return matches("internal/sim/...", pkg)
}
