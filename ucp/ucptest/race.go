//go:build race

package ucptest

// raceOn: the race detector is on and everything takes longer.
const raceOn = true
