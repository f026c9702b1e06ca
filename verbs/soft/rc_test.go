package soft

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// end is one side of a connection.
type end struct {
	t   testing.TB
	typ verbs.QPType
	c   verbs.Context
	pd  verbs.PD
	ch  verbs.CompChannel
	cq  verbs.CQ
	qp  verbs.QP
	mr  verbs.MR
	buf []byte
	got []verbs.WC
}

const testQKey = 0x11111111

func newEnd(t testing.TB, p verbs.Provider, typ verbs.QPType, size int) *end {
	infos, err := p.Devices()
	require.NoError(t, err)
	e := &end{t: t, typ: typ, buf: make([]byte, size)}
	e.c, err = p.Open(infos[0])
	require.NoError(t, err)
	e.pd, err = e.c.AllocPD()
	require.NoError(t, err)
	e.ch, err = e.c.CreateCompChannel()
	require.NoError(t, err)
	e.cq, err = e.c.CreateCQ(verbs.CQConfig{Depth: 1024, Channel: e.ch})
	require.NoError(t, err)
	e.mr, err = e.pd.Register(e.buf, verbs.MRConfig{Access: verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic})
	require.NoError(t, err)
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{
		Type: typ, SendCQ: e.cq, RecvCQ: e.cq,
		Caps: verbs.QPCaps{MaxSend: 256, MaxRecv: 256, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.qp.Close())
		require.NoError(t, e.mr.Close())
		require.NoError(t, e.cq.Close())
		require.NoError(t, e.ch.Close())
		require.NoError(t, e.pd.Close())
		require.NoError(t, e.c.Close())
	})
	return e
}

func (e *end) connect(o *end) {
	e.connectMTU(o, verbs.MTU4096)
}

func (e *end) connectMTU(o *end, mtu verbs.MTU) {
	e.connectAs(o, verbs.QPAttr{PathMTU: mtu, RQPSN: 0xfffff0, SQPSN: 0xfffff0, MaxDestRdAtomic: 16, MaxRdAtomic: 16, MinRNRTimer: 1, Timeout: 14, RetryCnt: 7, RNRRetry: 7})
}

// connectAs connects with numbers and counts of at, and its path MTU or 4096, to a
// peer that is known to be a soft device.
func (e *end) connectAs(o *end, at verbs.QPAttr) {
	at.PeerFeatures |= verbs.PeerGoucx
	e.connectFeatures(o, at)
}

// connectFeatures is connectAs with the features of at alone.
func (e *end) connectFeatures(o *end, at verbs.QPAttr) {
	gid, err := o.c.GID(1, 0)
	require.NoError(e.t, err)
	port, err := o.c.Port(1)
	require.NoError(e.t, err)
	at.Port, at.Access = 1, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic
	if at.PathMTU == 0 {
		at.PathMTU = verbs.MTU4096
	}
	at.AV, at.DestQPN = verbs.AHAttr{DGID: gid, DLID: port.LID, Port: 1}, o.qp.QPN()
	for _, to := range []struct {
		state verbs.QPState
		mask  verbs.AttrMask
	}{
		{verbs.StateInit, verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccessFlags},
		{verbs.StateRTR, verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN | verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer | verbs.AttrPeerFeatures},
		{verbs.StateRTS, verbs.AttrSQPSN | verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrMaxRdAtomic},
	} {
		at.State = to.state
		if e.typ == verbs.UC {
			to.mask &^= verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer | verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrMaxRdAtomic
		}
		require.NoError(e.t, e.qp.Modify(&at, verbs.AttrState|to.mask))
	}
}

var localhost = netip.MustParseAddr("127.0.0.1")

// overLinks runs a test over each link.
func overLinks(t *testing.T, test func(t *testing.T, p *Provider)) {
	for _, c := range []Config{{Link: LinkInproc}, {Link: LinkUDP, Addr: localhost}} {
		t.Run(c.Link, func(t *testing.T) { test(t, New(c)) })
	}
}

// pair is two connected queue pairs.
func pair(t testing.TB, p *Provider, size int) (a, b *end) {
	a, b = newEnd(t, p, verbs.RC, size), newEnd(t, p, verbs.RC, size)
	a.connect(b)
	b.connect(a)
	return a, b
}

// sge is a piece of the end's memory.
func (e *end) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: e.mr.Addr() + uint64(off), Len: uint32(n), LKey: e.mr.LKey()}
}

func (e *end) recv(id uint64, off, n int) {
	got, st := e.qp.PostRecv([]verbs.RecvWR{{ID: id, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{e.sge(off, n)}}})
	require.Equal(e.t, ucs.OK, st)
	require.Equal(e.t, 1, got)
}

func (e *end) send(wr verbs.SendWR) {
	got, st := e.qp.PostSend([]verbs.SendWR{wr})
	require.Equal(e.t, ucs.OK, st)
	require.Equal(e.t, 1, got)
}

// completion waits for the end's next completion while both ends poll.
func (e *end) completion(others ...*end) verbs.WC {
	var wc [4]verbs.WC
	until := ucs.Now().Add(10e9)
	for len(e.got) == 0 {
		n := e.cq.Poll(wc[:])
		require.GreaterOrEqual(e.t, n, 0)
		e.got = append(e.got, wc[:n]...)
		for _, o := range others {
			n := o.cq.Poll(wc[:])
			o.got = append(o.got, wc[:n]...)
		}
		require.True(e.t, ucs.Now().Before(until), "no completion")
	}
	w := e.got[0]
	e.got = e.got[1:]
	return w
}

func TestSendRecv(t *testing.T) { overLinks(t, testSendRecv) }

func testSendRecv(t *testing.T, p *Provider) {
	a, b := pair(t, p, 1<<20)
	for i, n := range []int{0, 1, 8, 32, 33, 64, 100, 4095, 4096, 4097, 100_000, 1 << 20} {
		for k := range n {
			a.buf[k] = byte(k*7 + i)
		}
		clear(b.buf)
		b.recv(uint64(i), 0, len(b.buf))
		a.send(verbs.SendWR{ID: 100 + uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, n)}})
		w := b.completion(a)
		require.Equal(t, verbs.WC{ID: uint64(i), Op: verbs.WCRecv, Len: uint32(n), QPN: b.qp.QPN(), SLID: w.SLID}, w)
		require.Equal(t, a.buf[:n], b.buf[:n])
		w = a.completion(b)
		require.Equal(t, verbs.WC{ID: 100 + uint64(i), Op: verbs.WCSend, Len: uint32(n), QPN: a.qp.QPN()}, w)
	}
}

func TestOneSided(t *testing.T) { overLinks(t, testOneSided) }

func testOneSided(t *testing.T, p *Provider) {
	a, b := pair(t, p, 1<<20)
	for k := range a.buf {
		a.buf[k] = byte(k * 3)
	}
	sg := [verbs.MaxSGE]verbs.SGE{a.sge(10, 50_000), a.sge(70_000, 7), a.sge(80_000, 12_345)}
	n := 50_000 + 7 + 12_345
	a.send(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 3, SG: sg, Remote: b.mr.Addr() + 3, RKey: b.mr.RKey()})
	w := a.completion(b)
	require.Equal(t, verbs.WCSuccess, w.Status, "%v", w)
	want := append(append(append([]byte(nil), a.buf[10:50_010]...), a.buf[70_000:70_007]...), a.buf[80_000:92_345]...)
	require.Equal(t, want, b.buf[3:3+n])
	clear(a.buf)
	a.send(verbs.SendWR{ID: 2, Op: verbs.OpRead, Flags: verbs.SendSignaled, NumSG: 3, SG: sg, Remote: b.mr.Addr() + 3, RKey: b.mr.RKey()})
	w = a.completion(b)
	require.Equal(t, verbs.WCSuccess, w.Status, "%v", w)
	got := append(append(append([]byte(nil), a.buf[10:50_010]...), a.buf[70_000:70_007]...), a.buf[80_000:92_345]...)
	require.Equal(t, want, got)

	binary.NativeEndian.PutUint64(b.buf[64:], 40)
	a.send(verbs.SendWR{ID: 3, Op: verbs.OpFetchAdd, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 8)}, Remote: b.mr.Addr() + 64, RKey: b.mr.RKey(), Swap: 2})
	a.send(verbs.SendWR{ID: 4, Op: verbs.OpCompareSwap, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(8, 8)}, Remote: b.mr.Addr() + 64, RKey: b.mr.RKey(), Compare: 42, Swap: 7})
	require.Equal(t, uint64(3), a.completion(b).ID)
	require.Equal(t, uint64(4), a.completion(b).ID)
	require.Equal(t, []uint64{40, 42, 7}, []uint64{
		binary.NativeEndian.Uint64(a.buf), binary.NativeEndian.Uint64(a.buf[8:]), binary.NativeEndian.Uint64(b.buf[64:]),
	})
}

// TestNotReady: a message that finds no receive waits at its sender.
func TestNotReady(t *testing.T) { overLinks(t, testNotReady) }

func testNotReady(t *testing.T, p *Provider) {
	a, b := pair(t, p, 64)
	a.send(verbs.SendWR{ID: 1, Op: verbs.OpSendImm, Imm: 5, Flags: verbs.SendSignaled | verbs.SendInline, InlineLen: 3, Inline: [verbs.InlineLen]byte{1, 2, 3}})
	var wc [1]verbs.WC
	for range 1000 {
		require.Zero(t, a.cq.Poll(wc[:]))
		require.Zero(t, b.cq.Poll(wc[:]))
	}
	b.recv(9, 0, 64)
	w := b.completion(a)
	require.Equal(t, verbs.WC{ID: 9, Op: verbs.WCRecv, Flags: verbs.WCWithImm, Imm: 5, Len: 3, QPN: b.qp.QPN(), SLID: w.SLID}, w)
	require.Equal(t, []byte{1, 2, 3}, b.buf[:3])
	require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
}

// TestBadKey: the write that names a wrong key fails, what comes after it is
// flushed, in order.
func TestBadKey(t *testing.T) { overLinks(t, testBadKey) }

func testBadKey(t *testing.T, p *Provider) {
	a, b := pair(t, p, 64)
	wr := verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.SendInline, InlineLen: 8, Remote: b.mr.Addr(), RKey: b.mr.RKey() ^ 1}
	a.send(wr)
	wr.ID = 2
	if n, st := a.qp.PostSend([]verbs.SendWR{wr}); n != 1 {
		t.Fatal(st)
	}
	w := a.completion(b)
	require.Equal(t, [2]uint64{1, uint64(verbs.WCRemAccessErr)}, [2]uint64{w.ID, uint64(w.Status)}, "%v", w)
	w = a.completion(b)
	require.Equal(t, [2]uint64{2, uint64(verbs.WCFlushErr)}, [2]uint64{w.ID, uint64(w.Status)}, "%v", w)
	require.Equal(t, verbs.StateErr, a.qp.Query().State)
	// The responder tells the requester first, then it ends.
	require.Eventually(t, func() bool { return b.qp.Query().State == verbs.StateErr }, 10*time.Second, time.Millisecond)
}

func TestDatagram(t *testing.T) { overLinks(t, testDatagram) }

func testDatagram(t *testing.T, p *Provider) {
	a, b, ah := datagrams(t, p)
	b.recv(1, 0, 4096)
	copy(a.buf, "hello")
	a.send(verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 5)}, AH: ah.ID(), QPN: b.qp.QPN(), QKey: testQKey})
	require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
	w := b.completion(a)
	require.Equal(t, uint32(45), w.Len)
	require.Equal(t, a.qp.QPN(), w.SrcQP)
	require.Equal(t, "hello", string(b.buf[40:45]))
	require.NoError(t, ah.Close())
}

// TestDatagramIsTaken: the sender's memory is free when the datagram has ended.
func TestDatagramIsTaken(t *testing.T) { overLinks(t, testDatagramIsTaken) }

func testDatagramIsTaken(t *testing.T, p *Provider) {
	a, b, ah := datagrams(t, p)
	b.recv(1, 0, 4096)
	sg := [verbs.MaxSGE]verbs.SGE{a.sge(0, 600), a.sge(1000, 500)}
	for i := range a.buf {
		a.buf[i] = byte(i % 251)
	}
	want := append(append([]byte(nil), a.buf[:600]...), a.buf[1000:1500]...)
	a.send(verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 2, SG: sg, AH: ah.ID(), QPN: b.qp.QPN(), QKey: testQKey})
	require.Equal(t, verbs.WCSuccess, a.completion().Status)
	clear(a.buf)
	require.Equal(t, uint32(40+1100), b.completion(a).Len)
	require.Equal(t, want, b.buf[40:1140])
	require.NoError(t, ah.Close())
}

// TestDatagramBeyondMTU: one that is longer than the receiver's MTU takes no receive, and the
// queue pair goes on.
func TestDatagramBeyondMTU(t *testing.T) {
	a, b, ah := datagramsOf(t, New(Config{Link: LinkUDP, Addr: localhost, MTU: verbs.MTU4096}), New(Config{Link: LinkUDP, Addr: localhost, MTU: verbs.MTU1024}))
	b.recv(1, 0, 1024+grhLen)
	for i, n := range []int{1025, 4000, 1024} {
		a.send(verbs.SendWR{ID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, n)}, AH: ah.ID(), QPN: b.qp.QPN(), QKey: testQKey})
		require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
	}
	w := b.completion(a)
	require.Equal(t, verbs.WCSuccess, w.Status)
	require.Equal(t, uint32(1024+grhLen), w.Len)
	require.NoError(t, ah.Close())
}

// datagrams makes two ends, and the way from the first to the second.
func datagrams(t *testing.T, p *Provider) (a, b *end, way verbs.AH) { return datagramsOf(t, p, p) }

func datagramsOf(t *testing.T, p, q *Provider) (a, b *end, way verbs.AH) {
	a, b = newEnd(t, p, verbs.UD, 4096), newEnd(t, q, verbs.UD, 4096)
	for _, e := range []*end{a, b} {
		require.NoError(t, e.qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1, QKey: testQKey}, verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrQKey))
		require.NoError(t, e.qp.Modify(&verbs.QPAttr{State: verbs.StateRTR}, verbs.AttrState))
		require.NoError(t, e.qp.Modify(&verbs.QPAttr{State: verbs.StateRTS, SQPSN: 7}, verbs.AttrState|verbs.AttrSQPSN))
	}
	gid, err := b.c.GID(1, 0)
	require.NoError(t, err)
	port, err := b.c.Port(1)
	require.NoError(t, err)
	way, err = a.pd.CreateAH(verbs.AHAttr{DGID: gid, DLID: port.LID, Port: 1, PeerFeatures: port.PeerFeatures})
	require.NoError(t, err)
	return a, b, way
}

// TestLastWord: what was taken is acknowledged though its queue pair ends at once,
// whichever way the program ends it.
func TestLastWord(t *testing.T) {
	for name, end := range map[string]func(q verbs.QP) error{
		"closed": func(q verbs.QP) error { return q.Close() },
		"error": func(q verbs.QP) error {
			return q.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []Config{{Link: LinkInproc}, {Link: LinkUDP, Addr: localhost}} {
				t.Run(c.Link, func(t *testing.T) {
					c.Engine = EngineInline
					a, b := pair(t, New(c), 64)
					b.recv(1, 0, 64)
					a.send(verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 8)}})
					require.Equal(t, verbs.WCSuccess, b.completion(a).Status)
					require.NoError(t, end(b.qp))
					require.Equal(t, verbs.WCSuccess, a.completion().Status)
				})
			}
		})
	}
}
