//go:build !race

package soft

// raceEnabled: the race detector runs.
const raceEnabled = false
