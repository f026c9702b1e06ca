package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMatrixIsComplete: the checked-in table has a row for each case.
func TestMatrixIsComplete(t *testing.T) { readMatrix(t) }

// TestNeedsHaveReasons: what a fixture cannot do is said in words, for each
// ability that a case names.
func TestNeedsHaveReasons(t *testing.T) {
	var all Needs
	for _, l := range lacks {
		all |= l.need
	}
	for _, th := range themes {
		for _, c := range th.cases {
			require.Zero(t, c.needs&^all, "%s/%s", th.name, c.name)
		}
	}
}
