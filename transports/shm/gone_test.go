package shm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// A worker that is closed, as one whose process is dead, is gone for certain where
// both addresses name one place; elsewhere other transports are worth trying.
func TestGoneForCertain(t *testing.T) {
	f, peer := openTest(t, new(recorder)), openTest(t, new(recorder))
	a := addressOf(peer)
	require.NoError(t, peer.Close())
	_, err := f.NewEndpoint(a, 0)
	require.ErrorIs(t, err, ucs.ErrUnreachable)
	require.ErrorIs(t, err, ucs.ErrPeerFailed)

	for name, from := range map[string]int{"boot id": 6, "namespace": 22} {
		unknown := make([]byte, 16)
		f.device = append([]byte(nil), f.device...)
		copy(f.device[from:], unknown)
		a.Device = f.device
		_, err = f.NewEndpoint(a, 0)
		require.ErrorIs(t, err, ucs.ErrUnreachable, name)
		assert.NotErrorIs(t, err, ucs.ErrPeerFailed, name)
		f.device = appendDevice(nil, f.dir)
	}
	assert.Zero(t, f.mapped)
}
