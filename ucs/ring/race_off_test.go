//go:build !race

package ring

// raceEnabled: the race detector runs.
const raceEnabled = false
