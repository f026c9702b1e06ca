//go:build race

package ucp_test

const raceOn = true
