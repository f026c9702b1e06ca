package soft

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

// TestShortPackets: the short way makes the same bytes of a message as the codec.
func TestShortPackets(t *testing.T) {
	x, y := pair(t, New(Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline, Window: 3}), 64)
	q := x.qp.(*qp)
	r := rand.New(rand.NewPCG(5, 5))
	u := q.d.udp
	q.sq.ring = make([]wqe, 8)
	for round := range 2000 {
		most := 1 + r.IntN(8)
		n := 1 + r.IntN(6)
		for i := range n {
			w := verbs.SendWR{
				ID: uint64(round), Flags: verbs.SendInline | verbs.SendFlags(r.IntN(2))*verbs.SendSignaled | verbs.SendFlags(r.IntN(2))*verbs.SendSolicited,
				InlineLen: 8, Remote: y.mr.Addr(), RKey: y.mr.RKey(), Op: verbs.OpSend,
			}
			if r.IntN(3) == 0 {
				w.InlineLen = uint8(r.IntN(65))
			}
			if round%2 == 0 || r.IntN(9) == 0 {
				w.Op = verbs.OpWrite
			}
			for j := range w.Inline {
				w.Inline[j] = byte(r.Uint32())
			}
			require.Zero(t, q.fillWQE(uint32(i), &w))
		}
		q.sq.tail.publish(uint64(n))
		t1, t2 := u.Begin(&q.route.udp), u.Begin(&q.route.udp)
		for i := range t2.Buf {
			t1.Buf[i], t2.Buf[i] = 0xaa, 0x55
		}
		q.addFast(t1, most)
		packets, bytes, req := q.counts[cntTxPackets], q.counts[cntTxBytes], q.req
		q.req.tx, q.req.psn, q.req.sndMax = 0, q.req.una, q.req.una
		q.counts = counts{}
		for t2.Count < most {
			at := q.saveSendState()
			if !q.nextRequest(&q.txPacket) {
				break
			}
			if !addPacket(t2, &q.txPacket) {
				q.restoreSendState(&at, 0)
				break
			}
		}
		require.Equal(t, t2.Count, t1.Count, round)
		require.Equal(t, t2.Total, t1.Total, round)
		require.Equal(t, t2.State, t1.State, round)
		require.Equal(t, t2.Buf[:t2.Pos], t1.Buf[:t1.Pos], round)
		require.Equal(t, q.req, req, round)
		require.Equal(t, []uint64{q.counts[cntTxPackets], q.counts[cntTxBytes]}, []uint64{packets, bytes}, round)
		q.counts = counts{}
		q.sq.tail.publish(0)
		q.req.tx, q.req.psn, q.req.sndMax, q.sq.nextPSN = 0, q.req.una, q.req.una, q.req.una
		t1.Pos, t1.Count = 0, 0
		t1.Send() // releases it
		t2.Pos, t2.Count = 0, 0
		t2.Send()
	}
}

// TestShortFromStranger: a packet that is right but for its sender does not go the
// short way, nor any other.
func TestShortFromStranger(t *testing.T) {
	x, y := pair(t, New(Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline}), 64)
	q := y.qp.(*qp)
	send := verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendInline | verbs.SendSignaled, InlineLen: 8}
	y.recv(1, 0, 8)
	x.send(send)
	y.completion(x)
	y.recv(2, 0, 8)

	u, err := udp.Open(localhost, 0, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, u.Close()) }()
	to, err := u.Peer(q.d.gid, q.d.lid)
	require.NoError(t, err)
	train := u.Begin(&to)
	require.True(t, addPacket(train, &packet{Header: wire.Header{Opcode: wire.SendOnly, PKey: q.pkey, DestQP: q.num, PSN: q.rsp.psn}, n: 8, nsg: 1, sg: [verbs.MaxSGE][]byte{make([]byte, 8)}}))
	require.Equal(t, ucs.OK, train.Send())
	for value(t, q.d, "device.dropped_source") == 0 {
		require.Zero(t, y.cq.Poll(make([]verbs.WC, 1)))
	}
	x.send(send)
	require.Equal(t, uint64(2), y.completion(x).ID)
}
