package ucp

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/self"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/uct"
)

// packet is a message as a transport hands it over.
type packet struct {
	id   uct.AMID
	src  uint32
	hdr  uint64
	data []byte
}

func deliver(wi *workerIface, ps ...packet) {
	for _, k := range ps {
		wi.HandleAM(k.data, []uct.Desc{{Len: uint32(len(k.data)), Header: k.hdr, RxConn: k.src, ID: k.id}})
	}
}

func newPort(t testing.TB) *workerIface {
	t.Helper()
	c, err := Open(Config{Providers: []uct.Component{self.Component()}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	w, err := c.NewWorker(WorkerConfig{Mode: ThreadSingle})
	require.NoError(t, err)
	return w.t.ifaces[0]
}

// first makes the payload of a first fragment.
func first(total uint64, data string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, total), data...)
}

// Garbage fails the source that sent it, is counted, and moves no other.
func TestGarbage(t *testing.T) {
	for _, tc := range []struct {
		name string
		ps   []packet
	}{
		{"unknown id", []packet{{id: 9}}},
		{"fragment without a first", []packet{{id: wire.Next, hdr: 1, data: []byte("x")}}},
		{"first fragment without length", []packet{{id: wire.First, data: []byte("short")}}},
		{"first fragment without data", []packet{{id: wire.First, data: first(9, "")}}},
		{"first fragment that is the whole", []packet{{id: wire.First, data: first(1, "a")}}},
		{"first fragment longer than the whole", []packet{{id: wire.First, data: first(1, "ab")}}},
		{"length beyond the address space", []packet{{id: wire.First, data: first(1<<63, "a")}}},
		{"two first fragments", []packet{{id: wire.First, data: first(9, "a")}, {id: wire.First, data: first(9, "a")}}},
		{"wrong message number", []packet{{id: wire.First, data: first(9, "a")}, {id: wire.Next, hdr: 2, data: []byte("b")}}},
		{"an abort of an unknown sender", []packet{{id: wire.Abort, data: []byte{wire.AbortPeer}}}},
		{"more than announced", []packet{{id: wire.First, data: first(3, "a")}, {id: wire.Next, hdr: 1, data: []byte("bcd")}}},
	} {
		for _, expected := range []bool{true, false} {
			t.Run(tc.name, func(t *testing.T) {
				wi := newPort(t)
				w := wi.worker()
				ctx := context.Background()
				buf := make([]byte, 16)
				var r RecvRequest
				if expected {
					r = w.TagRecv(buf, 0, 0)
				}
				for i := range tc.ps {
					tc.ps[i].src = 5
				}
				deliver(wi, tc.ps...)
				assert.Equal(t, uint64(1), w.t.count.Value(cntProtocolError))
				opened := tc.ps[0].id == wire.First && len(tc.ps) > 1
				if expected && opened {
					_, err := r.Wait(ctx)
					require.ErrorIs(t, err, ErrPeerFailed)
				} else if expected {
					require.False(t, r.Done(), "it waits for others")
					r.Cancel()
					r.Drop()
				}
				assert.Zero(t, w.t.matching.unexpQueue.Len())
				assert.Zero(t, w.t.pool.Allocated)

				// The source stays failed, others deliver.
				deliver(wi, packet{wire.Eager, 5, 1, []byte("bad")}, packet{wire.Eager, 6, 1, []byte("good")})
				m, err := w.TagRecv(buf, 0, 0).Wait(ctx)
				require.NoError(t, err)
				assert.Equal(t, "good", string(buf[:m.Len]))
				assert.Equal(t, uint64(2), w.t.count.Value(cntProtocolError))

				// A new connection under the same number starts anew.
				wi.HandleFailure(uct.Failure{RxConn: 5})
				deliver(wi, packet{wire.Eager, 5, 1, []byte("new")})
				m, err = w.TagRecv(buf, 0, 0).Wait(ctx)
				require.NoError(t, err)
				assert.Equal(t, "new", string(buf[:m.Len]))
			})
		}
	}
}

// A length on its own takes little memory.
func TestHugeAnnouncement(t *testing.T) {
	wi := newPort(t)
	deliver(wi, packet{wire.First, 1, 7, first(1<<40, "little")})
	assert.LessOrEqual(t, wi.t.pool.Allocated, maxPrealloc)
	r := wi.worker().TagRecv(make([]byte, 4), 7, ^Tag(0))
	assert.Zero(t, wi.t.pool.Allocated)
	wi.HandleFailure(uct.Failure{RxConn: 1})
	m, err := r.Wait(context.Background())
	require.ErrorIs(t, err, ErrPeerFailed)
	var op *OpError
	require.ErrorAs(t, err, &op)
	assert.Equal(t, 1<<40, m.Len)
}

// A connection that ends by half ends its receive, and what waits unexpected.
func TestSourceEndsByHalf(t *testing.T) {
	wi := newPort(t)
	r := wi.worker().TagRecv(make([]byte, 64), 1, ^Tag(0))
	deliver(wi,
		packet{wire.First, 1, 1, first(20, "abc")}, packet{wire.First, 2, 2, first(20, "xyz")},
		packet{wire.First, 3, 3, first(4, "good")[:11]}, packet{wire.Next, 3, 1, []byte("d")})
	wi.HandleFailure(uct.Failure{RxConn: 1, Err: ErrPeerFailed})
	wi.HandleFailure(uct.Failure{RxConn: 2})
	_, err := r.Wait(context.Background())
	require.ErrorIs(t, err, ErrPeerFailed)
	require.Equal(t, 1, wi.t.matching.unexpQueue.Len())
	buf := make([]byte, 8)
	_, err = wi.worker().TagRecv(buf, 0, 0).Wait(context.Background())
	require.NoError(t, err)
	assert.Equal(t, "good", string(buf[:4]))
	assert.Zero(t, wi.t.pool.Allocated)
}

// worker returns the worker of wi.
func (wi *workerIface) worker() *Worker {
	for c := range wi.t.ctx.owned {
		if w, ok := c.(*Worker); ok && &w.t == wi.t {
			return w
		}
	}
	return nil
}
