package ucp

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Random packets of every kind never panic, end each request at most once, and
// leave nothing behind when their sources end. Numbers below 64 in a header or
// payload stand for ids that this worker has given out, so that the fuzzer
// reaches what lies behind them.
func FuzzPackets(f *testing.F) {
	f.Add([]byte{2, 1, 9, 10, 0, 0, 0, 0, 0, 0, 0, 'a', 3, 1, 1, 'b'})
	f.Add([]byte{1, 1, 0, 3, 2, 0, 2, 2, 9, 255, 255, 255, 255, 255, 255, 255, 127, 1})
	f.Add([]byte{7, 1, 16, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 9, 1, 3, 'a', 'b', 'c'})
	f.Add([]byte{8, 1, 16, 2, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 6, 1, 0, 11, 1, 1, 1})
	f.Add([]byte{5, 1, 9, 1, 0, 0, 0, 0, 0, 0, 0, 'x', 10, 65, 2, 9, 'n', 11, 1, 1, 0, 12, 65, 0, 12, 1, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		wi := newPort(t)
		w := wi.worker()
		e, err := w.NewEndpoint(w.Address(), EndpointConfig{Eager: true})
		require.NoError(t, err)
		for src := range uint32(3) {
			deliver(wi, packet{wire.Peer, src + 1, 0, w.Address()})
		}
		// Requests that wait for an answer of the peer, who is us.
		ids := []uint64{
			e.TagSendSync([]byte("sync"), 1).id,
			e.TagSendWith(make([]byte, 40), 2, Opts{Flags: ForceRendezvous}).id,
			w.TagRecv(make([]byte, 16), 77, ^Tag(0)).id,
		}
		r := rand.New(rand.NewPCG(1, uint64(len(in))))
		for len(in) >= 3 {
			n := min(int(in[2]), len(in)-3)
			data := append([]byte(nil), in[3:3+n]...)
			if n >= 8 && wire.Uint64(data, 0) < 64 {
				binary.LittleEndian.PutUint64(data, ids[wire.Uint64(data, 0)%uint64(len(ids))])
			}
			hdr := uint64(in[1] / 64)
			if id := uct.AMID(in[0] % 20); id == wire.RTR || id == wire.SyncAck || id == wire.Data || id == wire.Reject || id == wire.Cancel || id == wire.Abort {
				hdr = ids[int(in[1]/8)%len(ids)]
			}
			deliver(wi, packet{uct.AMID(in[0] % 20), uint32(in[1]%3) + 1, hdr, data})
			if r.IntN(4) == 0 {
				q := w.TagRecv(make([]byte, r.IntN(20)), Tag(r.IntN(4)), ^Tag(r.IntN(2)))
				ids = append(ids, q.id)
				q.Drop()
			}
			if r.IntN(8) == 0 {
				w.Progress()
			}
			in = in[3+n:]
		}
		for s := range uint32(5) {
			wi.HandleFailure(uct.Failure{RxConn: s})
		}
		e.Abort(nil)
		for w.t.matching.unexpQueue.Len() > 0 {
			w.TagRecv(nil, 0, 0).Drop()
		}
		assert.Zero(t, w.t.matching.budget.used)
		for _, u := range w.t.matching.unexpected {
			assert.Zero(t, u)
		}
		start := ucs.Now()
		assert.NoError(t, w.Close())
		assert.Less(t, ucs.Now().Sub(start), 5*time.Second, "nobody is waited for")
	})
}
