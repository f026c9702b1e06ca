//go:build !race

package ucttest

// raceEnabled reports whether the race detector is on.
const raceEnabled = false
