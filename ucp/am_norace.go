//go:build !race

package ucp

// poisonAM: the message of a handler that has returned is made unusable.
const poisonAM = false
