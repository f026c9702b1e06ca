//go:build !race

// Package race reports whether the race detector is built in. It is slow, allocates after every
// operation, and reports plain stores that a test is about.
package race

// Enabled reports whether the race detector is built in.
const Enabled = false
