package shm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
)

func loaded(env ...string) (*config.Set, error) {
	s, _, err := config.Load(config.Options{Env: env, Dirs: []string{}}, settings)
	return s, err
}

func TestRingCells(t *testing.T) {
	for _, text := range []string{"100", "4", "8192", "0", "-8", "many"} {
		_, err := loaded("UCX_SHM_RING_CELLS=" + text)
		require.ErrorContains(t, err, "environment UCX_SHM_RING_CELLS", text)
		assert.ErrorContains(t, err, "a power of two from 8 to 4096", text)
	}
	for cells := minCells; cells <= maxCells; cells *= 2 {
		s, err := loaded(fmt.Sprintf("UCX_SHM_RING_CELLS=%d", cells), "UCX_SHM_RING_SIZE=64m")
		require.NoError(t, err)
		l, err := ringLayout(s)
		require.NoError(t, err)
		assert.Equal(t, cells, l.Cells)
	}
}

func TestRingCellsBeyondTheirRing(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string
	}{
		{
			[]string{"UCX_SHM_RING_CELLS=4096", "UCX_SHM_RING_SIZE=4k"},
			"UCX_SHM_RING_SIZE=4K (environment UCX_SHM_RING_SIZE) does not hold UCX_SHM_RING_CELLS=4096 (environment UCX_SHM_RING_CELLS), which need at least 258K: invalid parameter",
		},
		{
			[]string{"UCX_SHM_RING_CELLS=64", "UCX_SHM_RING_SIZE=4k"},
			"UCX_SHM_RING_SIZE=4K (environment UCX_SHM_RING_SIZE) does not hold UCX_SHM_RING_CELLS=64 (environment UCX_SHM_RING_CELLS), which need at least 6K: invalid parameter",
		},
	} {
		s, err := loaded(c.env...)
		require.NoError(t, err)
		_, err = ringLayout(s)
		require.ErrorIs(t, err, ucs.ErrInvalid)
		require.EqualError(t, err, c.want)
	}
	for _, env := range [][]string{
		{"UCX_SHM_RING_CELLS=4096", "UCX_SHM_RING_SIZE=258K"}, // what the message says is enough
		{"UCX_POSIX_FIFO_SIZE=4096"},
	} {
		s, err := loaded(env...)
		require.NoError(t, err)
		l, err := ringLayout(s)
		require.NoError(t, err)
		require.Equal(t, 4096, l.Cells)
	}
}

// minBulk is the ring's own bound.
func TestMinBulk(t *testing.T) {
	require.NoError(t, ring.Layout{Cells: minCells, Bulk: minBulk}.Check())
	require.Error(t, ring.Layout{Cells: minCells, Bulk: minBulk - ring.CellSize}.Check())
}
