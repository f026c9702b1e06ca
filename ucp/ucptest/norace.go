//go:build !race

package ucptest

const raceOn = false
