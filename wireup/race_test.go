//go:build race

package wireup

const raceEnabled = true
