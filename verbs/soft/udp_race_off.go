//go:build !race

package soft

// crossed is of use to the race detector alone.
func crossed() {}
