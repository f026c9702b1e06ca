package ucttest

import (
	_ "embed"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// matrixText lists the cases that each transport passes.
//
//go:embed matrix.txt
var matrixText string

func readMatrix(t testing.TB) *suitetest.Matrix {
	var names []string
	for _, th := range themes {
		for _, c := range th.cases {
			names = append(names, th.name+"/"+c.name)
		}
	}
	m, err := suitetest.ParseMatrix(matrixText, names)
	require.NoError(t, err, "matrix.txt")
	return m
}
