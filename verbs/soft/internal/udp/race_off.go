//go:build !race

package udp

// raceSync does nothing without the race detector.
func raceSync() {}
