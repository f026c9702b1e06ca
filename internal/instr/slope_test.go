package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/perf"
)

func TestSlope(t *testing.T) {
	const warm = perf.CountedWarm
	for _, c := range []struct {
		name string
		a, b float64
		want float64 // 0: refused
	}{
		{"warming is not counted", 50 * (warm + few), 50 * (warm + many), 50},
		{"a little around the loop", 50*(warm+few) + 100, 50*(warm+many) + 100, 50},
		{"nothing counted", 0, 0, 0},
		{"does not grow", 800_000, 800_000, 0},
		{"grows with something else", 50 * few, 50 * 2 * many, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			per, err := slope(c.a, c.b)
			if c.want == 0 {
				assert.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.InDelta(t, c.want, per, 0.1)
		})
	}
}

func TestTotal(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	count := func(text string) (float64, error) {
		require.NoError(t, os.WriteFile(out, []byte(text), 0o600))
		return total(out, "perf.countIdle")
	}
	got, err := count("version: 1\nfn=(1) perf.countIdle\n12 170\ntotals: 170\n")
	require.NoError(t, err)
	assert.Equal(t, 170.0, got)

	_, err = count("version: 1\n")
	assert.Error(t, err)
	_, err = count("version: 1\nfn=(1) perf.countIdle\n12 170\nfn=(2) perf.countIdle'2\n7 30\ntotals: 200\n")
	assert.ErrorIs(t, err, errMissed)
}

// Each row names an operation that there is.
func TestRows(t *testing.T) {
	ops := map[string]bool{}
	for _, c := range perf.CountedOps() {
		ops[c.Name] = true
	}
	titles := map[string]bool{}
	for _, r := range rows {
		assert.True(t, ops[r.op], r.op)
		assert.False(t, titles[r.name()], r.name())
		titles[r.name()] = true
	}
}

// Each operation runs, in the counts that it is asked for.
func TestCarryOut(t *testing.T) {
	for _, c := range perf.CountedOps() {
		require.NoError(t, runChild(c.Name, few), c.Name)
	}
	assert.Error(t, runChild("nothing", few))
}
