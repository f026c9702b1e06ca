package ucttest

import "testing"

var processCases []testCase

func isChild() bool             { return false }
func serve(*testing.T, Factory) {}
