//go:build race

package mapped

const raceEnabled = true
