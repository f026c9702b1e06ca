//go:build !linux

package suitetest

import "testing"

// SkipEmulated skips nothing: the emulators it knows run Linux programs.
func SkipEmulated(testing.TB) {}
