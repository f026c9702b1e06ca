//go:build race

package shmem

// raceEnabled: the detector would report the plain store that the test is about.
const raceEnabled = true
