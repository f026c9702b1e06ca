package ucp

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/self"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

const (
	mine    = 5 // a source whose messages are of this worker itself
	another = 6 // one of some other worker
)

// words makes a payload of 8-byte numbers and text.
func words(text string, v ...uint64) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return append(b, text...)
}

// recordKnown is record with both sources known.
func recordKnown(t *testing.T) (*workerIface, *recorder, Endpoint) {
	t.Helper()
	wi, r, e := record(t)
	c, err := Open(Config{Providers: []uct.Component{self.Component()}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	w, err := c.NewWorker(WorkerConfig{Mode: ThreadSingle})
	require.NoError(t, err)
	deliver(wi, packet{wire.Peer, mine, 0, wi.worker().Address()}, packet{wire.Peer, another, 0, w.Address()})
	require.Zero(t, wi.t.count.Value(cntProtocolError))
	return wi, r, e
}

// handshake is a request in each state that a peer may name, by itself.
type handshake struct {
	p       *workerIface
	match   Request // a sync send
	rts     Request // announced
	data    Request // asked for, and by half on its way
	fetch   RecvRequest
	kept    uint64 // id under which mine announced a message that nobody asked for
	ended   uint64 // id of what has ended
	dataID  uint64 // id under which mine is sent data
	pending *full
}

// full is a recorder that has room for n more messages.
type full struct {
	*recorder
	room int
}

func (f *full) ReserveAM(id uct.AMID, hdr uint64, n int) ([]byte, uct.Status) {
	if f.room == 0 {
		return nil, ucs.NoResource
	}
	f.room--
	return f.recorder.ReserveAM(id, hdr, n)
}

func (f *full) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	if f.room == 0 {
		return ucs.NoResource
	}
	f.room--
	return f.recorder.AMShort(id, hdr, p)
}

func (f *full) PendingAdd(uct.Token) uct.Status { return ucs.OK }

func newHandshake(t *testing.T) *handshake {
	t.Helper()
	wi, r, e := recordKnown(t)
	w := wi.worker()
	h := &handshake{p: wi, kept: 3<<32 | 9, dataID: 1<<32 | 77}
	h.match = e.TagSendSync([]byte("match"), 1)
	h.rts = e.TagSendWith(make([]byte, 100), 2, Opts{Flags: ForceRendezvous})
	h.data = e.TagSendWith(make([]byte, 100), 3, Opts{Flags: ForceRendezvous})
	past := e.TagSendSync(nil, 4)
	deliver(wi, packet{wire.SyncAck, mine, past.id, nil})
	require.True(t, past.Done())
	h.ended = past.id
	h.fetch = w.TagRecv(make([]byte, 100), 5, ^Tag(0))
	deliver(wi, packet{wire.RTS, mine, 5, words("", 2<<32|8, 100)}, packet{wire.RTS, mine, 6, words("", h.kept, 100)})
	deliver(wi, packet{wire.Data, mine, h.fetch.id, make([]byte, 10)})
	h.pending = &full{r, 2}
	w.t.lanes[w.t.eps[1].lane].ep = h.pending
	deliver(wi, packet{wire.RTR, mine, h.data.id, words("", h.dataID, 100)})
	require.Zero(t, w.t.count.Value(cntProtocolError))
	require.Zero(t, w.t.count.Value(cntStale))
	for _, q := range []Request{h.match, h.rts, h.data, h.fetch.Request} {
		require.False(t, q.Done())
	}
	require.Equal(t, 1, w.t.matching.unexpQueue.Len())
	t.Cleanup(func() { // else the close waits for them
		h.pending.room = 100
		for _, q := range []Request{h.match, h.rts, h.data} {
			q.Cancel()
		}
	})
	return h
}
