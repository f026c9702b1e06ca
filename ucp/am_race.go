//go:build race

package ucp

// poisonAM enables overwriting the AM after its handler has returned.
const poisonAM = true
