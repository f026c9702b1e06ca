//go:build !ucxdebug

package ucp

// debugThreads: see debug_on.go.
const debugThreads = false
