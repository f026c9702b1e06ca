//go:build race

package wire

// raceEnabled: the race detector runs, and allocates.
const raceEnabled = true
