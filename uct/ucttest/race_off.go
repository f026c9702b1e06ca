//go:build !race

package ucttest

// raceEnabled: the race detector runs.
const raceEnabled = false
