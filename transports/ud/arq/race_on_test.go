//go:build race

package arq

// raceEnabled: the race detector runs, and is slow.
const raceEnabled = true
