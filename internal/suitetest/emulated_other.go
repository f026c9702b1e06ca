//go:build !linux

package suitetest

import "testing"

// SkipEmulated skips nothing: the known emulators run Linux programs.
func SkipEmulated(testing.TB) {}
