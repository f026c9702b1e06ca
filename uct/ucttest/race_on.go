//go:build race

package ucttest

// raceEnabled: the race detector runs; it is slow, and allocates.
const raceEnabled = true
