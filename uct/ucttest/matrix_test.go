package ucttest

import "testing"

// TestMatrixIsComplete: the checked-in table has a row for each case.
func TestMatrixIsComplete(t *testing.T) { readMatrix(t) }
