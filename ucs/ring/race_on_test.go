//go:build race

package ring

// raceEnabled: the race detector runs, ten times slower.
const raceEnabled = true
