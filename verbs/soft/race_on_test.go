//go:build race

package soft

// raceEnabled: the race detector runs, and allocates.
const raceEnabled = true
