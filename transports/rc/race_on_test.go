//go:build race

package rc

// raceEnabled: the race detector runs, and is slow.
const raceEnabled = true
