//go:build race

package perf

// raceEnabled: allocations are not the product's under the detector.
const raceEnabled = true
