//go:build ucxdebug

package ucp

// debugThreads: a Thread takes a lock for each call, and panics if another goroutine has it.
const debugThreads = true
