//go:build !race

package ud

// raceEnabled: the race detector runs.
const raceEnabled = false
