//go:build race

package ud

// raceEnabled: the race detector runs, and is slow.
const raceEnabled = true
