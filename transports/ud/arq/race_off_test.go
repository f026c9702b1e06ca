//go:build !race

package arq

// raceEnabled: the race detector runs.
const raceEnabled = false
