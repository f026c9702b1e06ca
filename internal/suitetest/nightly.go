package suitetest

import (
	"os"
	"testing"
)

// All reports whether every variant of the suites runs, as in make nightly.
func All() bool { return os.Getenv("GOUCX_TEST_ALL") != "" }

// Nightly skips a test that only make nightly runs.
func Nightly(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skip("make nightly runs it")
	}
}
