//go:build race

package shm

// raceEnabled: the race detector runs, and allocates.
const raceEnabled = true
