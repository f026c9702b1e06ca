//go:build !race

package soft

// raceSync does nothing without the race detector.
func raceSync() {}
