//go:build !race

package soft

// crossed does nothing without the race detector.
func crossed() {}
