//go:build !race

package wire

// raceEnabled: the race detector runs.
const raceEnabled = false
