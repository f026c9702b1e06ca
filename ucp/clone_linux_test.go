package ucp

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// A host that claims to be this one, as a clone of a virtual machine does, but has
// other network addresses, is reached by the network: that its socket is not here
// proves nothing. With the same addresses it does.
func TestCloneIsReachedByTheNetwork(t *testing.T) {
	for _, clone := range []bool{true, false} {
		p := newSWPair(t, "shm,rc", 64)
		b, err := p.x.NewWorker(WorkerConfig{Mode: ThreadSingle})
		require.NoError(t, err)
		v, err := wireup.Parse(b.Address())
		require.NoError(t, err)
		for i := range v.Entries {
			e := &v.Entries[i]
			if e.Transport != uct.TransportShm {
				continue
			}
			e.Addr.Iface[0]++ // its socket is elsewhere
			if clone {
				d := e.Addr.Device // and so are its network addresses
				d[38]++
				binary.LittleEndian.PutUint32(d[46:], crc32.ChecksumIEEE(d[:46]))
			}
		}
		address, err := v.Append(nil)
		require.NoError(t, err)
		e, err := p.a.NewEndpoint(address, EndpointConfig{})
		require.NoError(t, err)
		r := e.TagSend([]byte("hello"), 1)
		if !clone {
			require.True(t, r.Done())
			require.ErrorIs(t, r.Err(), ErrUnreachable)
			continue
		}
		got := b.TagRecv(make([]byte, 8), 1, ^Tag(0))
		for !got.Done() {
			require.NoError(t, p.ctx.Err(), "waited too long")
			p.a.Progress()
			b.Progress()
		}
		require.NoError(t, got.Err())
		require.NoError(t, r.Err())
	}
}
