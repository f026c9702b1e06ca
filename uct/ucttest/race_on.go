//go:build race

package ucttest

// raceEnabled reports whether the race detector is on, which is slow and allocates.
const raceEnabled = true
