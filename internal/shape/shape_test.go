package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMeasures counts a small tree by every measure.
func TestMeasures(t *testing.T) {
	tr, err := readTree("testdata/tree")
	require.NoError(t, err)
	want := []string{"13", "230.8", "0.0", "0.0", "1", "4 Worker", "1 ucp", "23 ucp/worker.go", "1", "1", "1", "0 % of 0 files"}
	require.Len(t, measures, len(want))
	for i, m := range measures {
		got, _ := m.count(tr)
		assert.Equal(t, want[i], got, m.name)
	}
}

// TestHardestFiles finds each subject in the tree: a renamed file needs its new name in hardest.
func TestHardestFiles(t *testing.T) {
	tr, err := readTree("../..")
	require.NoError(t, err)
	got, list := hardestFiles(tr)
	assert.Contains(t, got, fmt.Sprintf("%% of %d files", len(hardest)), list)
}
