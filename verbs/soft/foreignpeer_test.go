package soft

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// foreignPeer is a queue pair of another implementation on the simulated network. It
// obeys the specification and shares no code with the device beyond the packet
// format. It has the habits of the kernel's Soft-RoCE: it acknowledges only what asks
// for it, executes each duplicate READ, sends from any UDP port with any IPv4
// identification, and completes an atomic without its value where a plain ACK carries
// the atomic's PSN.
type foreignPeer struct {
	t    testing.TB
	net  *sim.Net
	rng  *rand.Rand
	at   netip.AddrPort // where it receives
	to   netip.AddrPort
	dest verbs.QPN
	mtu  int
	port func() uint16 // UDP source port of the next packet
	id   func() uint16 // IPv4 identification of the next packet
	lose func(p *packet) bool

	mem    []byte    // answers READs and atomics, takes WRITEs; addresses begin at 0
	expect verbs.PSN // responder
	msn    uint32
	nakked bool
	olds   map[verbs.PSN]uint64 // results of atomics

	ops       []*foreignOp // requester: those that are posted
	una, next verbs.PSN
	since     ucs.Time // of the last progress
	timeout   time.Duration

	requests map[wire.Kind]int // packets that came, by kind
	repeated int               // duplicate requests that came
	got      []foreignGot      // responses that came, in order
	timeouts int
	badACKs  int // plain ACKs at the PSN of a READ or an atomic
}

// foreignGot is a response that came.
type foreignGot struct {
	op  wire.Opcode
	psn verbs.PSN
}

// foreignOp is a request of the peer.
type foreignOp struct {
	p     packet
	npk   int
	ended bool
	value uint64 // of an atomic
	valid bool   // value came
}

const (
	foreignQPN  = verbs.QPN(0x55)
	foreignPSN  = verbs.PSN(0xfffff8) // first that the peer sends
	localPSN    = verbs.PSN(0xfffffc) // first that the device sends
	foreignRKey = 0x1234
)

// foreignWorld is a device and a foreign peer, connected.
type foreignWorld struct {
	*simWorld
	side *simSide
	peer *foreignPeer
}

func newForeignWorld(t *testing.T, seed uint64, mtu verbs.MTU, timeout uint8) *foreignWorld {
	w, err := newSimWorld(seed, 1, Config{Addr: netip.MustParseAddr("10.0.0.1")})
	require.NoError(t, err)
	w.net.SetDefault(sim.Link{Latency: 5 * time.Microsecond})
	w.net.KeepTrace(300, describePacket)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.net.Trace())
		}
	})
	d := w.devs[0]
	side := newSimSide(t, d, 1<<20)
	f := &foreignPeer{
		t: t, net: w.net, rng: rand.New(rand.NewPCG(seed, 1)), at: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 99}), wire.Port), to: d.fabricAddr(),
		dest: side.qp.QPN(), mtu: mtu.Bytes(), mem: make([]byte, 1<<20), expect: localPSN, una: foreignPSN, next: foreignPSN,
		olds: make(map[verbs.PSN]uint64), requests: make(map[wire.Kind]int), timeout: timeoutOf(timeout),
		lose: func(*packet) bool { return false },
	}
	f.port = func() uint16 { return uint16(f.rng.Uint32()) }
	f.id = f.port
	for i := range f.mem {
		f.mem[i] = byte(f.rng.Uint32())
	}
	w.net.Attach(f.at, f.arrived)
	require.NoError(t, verbs.ConnectRC(side.qp, verbs.RemoteQP{
		AV: verbs.AHAttr{DGID: verbs.GIDOf(f.at.Addr()), Port: 1}, QPN: foreignQPN, PSN: foreignPSN, MTU: mtu, MaxRdAtomic: 16,
	}, verbs.QPAttr{Access: allAccess, SQPSN: localPSN, MaxRdAtomic: 16, MinRNRTimer: 1, Timeout: timeout, RetryCnt: 7, RNRRetry: 7}))
	return &foreignWorld{w, side, f}
}

// until lets time pass until ready is true, or for a virtual second.
func (w *foreignWorld) until(ready func() bool) {
	w.peer.t.Helper()
	for end := w.net.Now().Add(time.Second); !ready(); {
		require.True(w.peer.t, w.net.Now().Before(end) && w.advance(), "nothing happens any more")
	}
}

// quiet lets the packets that are under way arrive.
func (w *foreignWorld) quiet() {
	w.settle()
	for end := w.net.Now().Add(time.Millisecond); w.net.Now().Before(end); {
		if !w.advance() {
			return
		}
	}
}

// completions polls and checks n completions.
func (w *foreignWorld) completions(n int) {
	w.peer.t.Helper()
	wcs := make([]verbs.WC, 16)
	w.until(func() bool {
		for _, wc := range wcs[:w.side.cq.Poll(wcs)] {
			require.Equal(w.peer.t, verbs.WCSuccess, wc.Status)
			n--
		}
		return n <= 0
	})
}

// post posts a work request of the device.
func (w *foreignWorld) post(wr verbs.SendWR) {
	w.peer.t.Helper()
	n, st := w.side.qp.PostSend([]verbs.SendWR{wr})
	require.Equal(w.peer.t, ucs.OK, st)
	require.Equal(w.peer.t, 1, n)
}

// send sends p to the device.
func (f *foreignPeer) send(p *packet) {
	p.DestQP, p.PKey = f.dest, defaultPKey
	b := make([]byte, wire.MaxHeaderLen+p.n+8)
	b = b[:p.encode(b)+wire.ICRCLen]
	from := netip.AddrPortFrom(f.at.Addr(), f.port())
	pre := wire.NewPrefix(from, f.to)
	pre.Seal(b, f.id())
	if !f.lose(p) {
		f.net.Send(from, f.to, b)
	}
}

// arrived takes a packet of the device.
func (f *foreignPeer) arrived(from netip.AddrPort, b []byte, _ ucs.Time) {
	pre := wire.NewPrefix(from, f.at)
	id, ok := pre.Check(b, 0)
	require.True(f.t, ok && id == 0, "ICRC")
	var p packet
	require.Equal(f.t, wire.FaultNone, p.decode(b[:len(b)-wire.ICRCLen]))
	require.Equal(f.t, foreignQPN, p.DestQP)
	info := p.Opcode.Info()
	switch info.Kind {
	case wire.KindAck, wire.KindReadResponse:
		f.answered(&p, info)
	default:
		f.requested(&p, info)
	}
}

// requested is the responder.
func (f *foreignPeer) requested(p *packet, info *wire.Info) {
	f.requests[info.Kind]++
	behind := p.PSN.Diff(f.expect)
	if behind > 0 {
		if !f.nakked {
			f.nakked = true
			f.send(&packet{Header: wire.Header{Opcode: wire.Acknowledge, PSN: f.expect, Syndrome: wire.NakSequence, MSN: f.msn}})
		}
		return
	}
	if behind < 0 {
		f.repeated++
	}
	npk := 1
	switch info.Kind {
	case wire.KindReadRequest:
		require.Equal(f.t, uint32(foreignRKey), p.RKey)
		npk = max(1, (int(p.DMALen)+f.mtu-1)/f.mtu)
		f.answerRead(p, npk)
	case wire.KindAtomic:
		if behind == 0 {
			word := f.mem[p.VA:][:8]
			f.olds[p.PSN] = binary.NativeEndian.Uint64(word)
			binary.NativeEndian.PutUint64(word, f.olds[p.PSN]+p.SwapDt) // fetch and add alone is tested
		}
		old, ok := f.olds[p.PSN]
		require.True(f.t, ok, "a duplicate of an atomic that was never executed")
		f.send(&packet{Header: wire.Header{Opcode: wire.AtomicAcknowledge, PSN: p.PSN, Syndrome: wire.AckNoCredits, MSN: f.msn, OrigRemDt: old}})
	case wire.KindWrite:
		if behind == 0 && info.Place == wire.PlaceOnly {
			copy(f.mem[p.VA:], p.sg[0][:p.n])
		}
		fallthrough
	default:
		if p.AckReq || behind < 0 {
			f.send(&packet{Header: wire.Header{Opcode: wire.Acknowledge, PSN: p.PSN, Syndrome: wire.AckNoCredits, MSN: f.msn}})
		}
	}
	if behind == 0 {
		f.expect, f.nakked = f.expect.Add(npk), false
		f.msn++
	}
}

// answerRead answers a READ of npk packets.
func (f *foreignPeer) answerRead(p *packet, npk int) {
	for i := range npk {
		op := wire.ReadResponseMiddle
		switch {
		case npk == 1:
			op = wire.ReadResponseOnly
		case i == 0:
			op = wire.ReadResponseFirst
		case i == npk-1:
			op = wire.ReadResponseLast
		}
		data := f.mem[p.VA:][i*f.mtu : min(int(p.DMALen), (i+1)*f.mtu)]
		f.send(&packet{Header: wire.Header{Opcode: op, PSN: p.PSN.Add(i), Syndrome: wire.AckNoCredits, MSN: f.msn}, n: len(data), nsg: 1, sg: [verbs.MaxSGE][]byte{data}})
	}
}

// post adds a request and sends it.
func (f *foreignPeer) post(o foreignOp) *foreignOp {
	op := &o
	op.npk = 1
	if o.p.Opcode == wire.ReadRequest {
		op.npk = max(1, (int(o.p.DMALen)+f.mtu-1)/f.mtu)
	}
	op.p.PSN, f.next = f.next, f.next.Add(op.npk)
	f.ops = append(f.ops, op)
	if len(f.ops) == 1 {
		f.since = f.net.Now()
		f.watch()
	}
	f.send(&op.p)
	return op
}

// watch looks at the time-out as long as the peer lives.
func (f *foreignPeer) watch() {
	f.net.At(f.net.Now().Add(f.timeout), func(now ucs.Time) {
		if f.una != f.next {
			if now.Sub(f.since) >= f.timeout {
				f.timeouts++
				f.goBack(now)
			}
			f.watch()
			return
		}
		f.ops = nil
	})
}

// goBack sends everything again from the oldest request without an answer.
func (f *foreignPeer) goBack(now ucs.Time) {
	f.since = now
	for _, o := range f.ops {
		if !o.ended {
			f.send(&o.p)
		}
	}
}

// answered is the completer.
func (f *foreignPeer) answered(p *packet, info *wire.Info) {
	f.got = append(f.got, foreignGot{p.Opcode, p.PSN})
	if p.Opcode == wire.Acknowledge && p.Syndrome == wire.NakSequence {
		f.endBefore(p.PSN)
		f.goBack(f.net.Now())
		return
	}
	require.True(f.t, p.Opcode != wire.Acknowledge || p.Syndrome.IsAck(), "NAK %#x", p.Syndrome)
	if p.Opcode == wire.Acknowledge {
		for _, o := range f.ops {
			if o.p.Opcode != wire.WriteOnly && p.PSN.Diff(o.p.PSN) >= 0 && p.PSN.Diff(o.p.PSN) < o.npk {
				f.badACKs++
			}
		}
		if !f.endBefore(p.PSN) {
			return
		}
		f.end(p.PSN)
		return
	}
	if !f.endBefore(p.PSN) || p.PSN != f.una {
		return
	}
	o := f.oldest()
	if info.Kind == wire.KindReadResponse {
		require.Equal(f.t, wire.ReadRequest, o.p.Opcode)
		f.una, f.since = f.una.Add(1), f.net.Now()
		o.ended = info.Place.Ends()
		return
	}
	require.Equal(f.t, wire.FetchAdd, o.p.Opcode)
	o.value, o.valid = p.OrigRemDt, true
	f.end(p.PSN)
}

// oldest is the oldest request without an answer; nil: there is none.
func (f *foreignPeer) oldest() *foreignOp {
	for _, o := range f.ops {
		if !o.ended {
			return o
		}
	}
	return nil
}

// end ends the oldest request with the packet psn, also an atomic whose value did not
// come.
func (f *foreignPeer) end(psn verbs.PSN) {
	if o := f.oldest(); o != nil && o.p.PSN == psn && o.npk == 1 {
		o.ended = true
		f.una, f.since = psn.Add(1), f.net.Now()
	}
}

// endBefore ends the WRITEs before psn. Where the answer of a READ or an atomic before
// it is missing, it sends again and returns false.
func (f *foreignPeer) endBefore(psn verbs.PSN) bool {
	for o := f.oldest(); o != nil && f.una.Before(psn); o = f.oldest() {
		if o.p.Opcode != wire.WriteOnly {
			f.goBack(f.net.Now())
			return false
		}
		f.end(o.p.PSN)
	}
	return true
}

// write, read and fetchAdd are requests to the memory of side.
func (f *foreignPeer) write(s *simSide, data []byte, asks bool) *foreignOp {
	return f.post(foreignOp{p: packet{Header: wire.Header{Opcode: wire.WriteOnly, AckReq: asks, VA: s.mr.Addr(), RKey: s.mr.RKey(), DMALen: uint32(len(data))}, n: len(data), nsg: 1, sg: [verbs.MaxSGE][]byte{data}}})
}

func (f *foreignPeer) read(s *simSide, n int) *foreignOp {
	return f.post(foreignOp{p: packet{Header: wire.Header{Opcode: wire.ReadRequest, AckReq: true, VA: s.mr.Addr(), RKey: s.mr.RKey(), DMALen: uint32(n)}}})
}

func (f *foreignPeer) fetchAdd(s *simSide, add uint64) *foreignOp {
	return f.post(foreignOp{p: packet{Header: wire.Header{Opcode: wire.FetchAdd, AckReq: true, VA: s.mr.Addr() + 64, RKey: s.mr.RKey(), SwapDt: add}}})
}
