package verbstest

import (
	_ "embed"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// matrixText is what each fixture passes.
//
//go:embed matrix.txt
var matrixText string

func readMatrix(t testing.TB) *suitetest.Matrix {
	m, err := suitetest.ParseMatrix(matrixText, caseNames())
	require.NoError(t, err, "matrix.txt")
	return m
}

// caseNames returns theme/case of all cases.
func caseNames() (names []string) {
	for _, th := range themes {
		for _, c := range th.cases {
			names = append(names, th.name+"/"+c.name)
		}
	}
	return names
}
