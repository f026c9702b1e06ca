//go:build !race

package rc

// raceEnabled: the race detector runs.
const raceEnabled = false
