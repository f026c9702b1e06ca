//go:build race

package verbstest

// raceEnabled says that the race detector allocates behind every operation.
const raceEnabled = true
