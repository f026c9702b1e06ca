//go:build !linux

package ucp_test

import "testing"

// readable: event descriptors are not supported here.
func readable(tb testing.TB, _ int) bool {
	tb.Helper()
	tb.Fatal("no event descriptors")
	return false
}
