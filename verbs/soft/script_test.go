package soft

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// account is what a device did in a script: its counters, and where its queue
// pair's sequence numbers ended.
type account struct {
	counters      map[string]uint64
	psn, una      verbs.PSN
	expected      verbs.PSN
	msn           uint32
	sends, reads  uint32
	window, place int
}

// TestScript: one script of operations makes the same packets, acknowledgements
// and sequence numbers on both links. The time is the test's, so that no timer
// tells them apart, and one goroutine drives both ends.
//
// Short messages are acknowledged when nothing more stands in inbox or socket, so
// the script waits for that.
func TestScript(t *testing.T) {
	for _, mtu := range []verbs.MTU{verbs.MTU4096, verbs.MTU20480} {
		for _, window := range []int{defaultWindow, maxDefaultWindow} { // what is asked for depends on it
			t.Run(fmt.Sprintf("%v/%d", mtu, window), func(t *testing.T) { testScript(t, mtu, window) })
		}
	}
}

func testScript(t *testing.T, mtu verbs.MTU, window int) {
	var first [2]account
	for i, c := range []Config{{Link: LinkInproc}, {Link: LinkUDP, Addr: localhost}} {
		c.Engine, c.Window = EngineInline, window
		t.Run(c.Link, func(t *testing.T) {
			s := newScriptMTU(t, New(c), mtu)
			s.run()
			got := s.accounts()
			require.Equal(t, uint64(2), got[1].counters["device.rnr_naks"])
			require.Equal(t, uint64(2), got[0].counters["device.retransmits"])
			require.Equal(t, verbs.PSN(0xfffff0).Add(s.packets), got[0].psn, "wraps, and counts each packet")
			require.Equal(t, got[0].psn, got[0].una)
			require.Equal(t, got[0].psn, got[1].expected)
			if i == 0 {
				first = got
				return
			}
			require.Equal(t, first, got)
		})
	}
}

// script drives two ends by hand.
type script struct {
	t       *testing.T
	a, b    *end
	now     ucs.Time
	packets int // sequence numbers that a's requests take
	mtu     int
}

func newScript(t *testing.T, p *Provider) *script { return newScriptMTU(t, p, verbs.MTU4096) }

func newScriptMTU(t *testing.T, p *Provider, mtu verbs.MTU) *script {
	s := &script{t: t, mtu: mtu.Bytes(), a: newEnd(t, p, verbs.RC, 1<<20), b: newEnd(t, p, verbs.RC, 1<<20)}
	s.a.connectMTU(s.b, mtu)
	s.b.connectMTU(s.a, mtu)
	s.now = max(s.a.device().clock(), s.b.device().clock())
	s.tick(0)
	return s
}

func (e *end) device() *device { return e.c.(*device) }

// tick lets time pass.
func (s *script) tick(d time.Duration) {
	s.now = s.now.Add(d)
	for _, e := range []*end{s.a, s.b} {
		e.device().tick(s.now)
	}
}

// pass runs both engines, without any time passing.
func (s *script) pass() (n int) {
	for _, e := range []*end{s.a, s.b} {
		n += e.device().progress()
		var wc [4]verbs.WC
		k := e.cq.(*cq).pop(wc[:])
		require.GreaterOrEqual(s.t, k, 0)
		e.got = append(e.got, wc[:k]...)
	}
	return n
}

// until passes until an end has so many completions, and checks and drops them.
func (s *script) until(e *end, n int) {
	for end := time.Now().Add(time.Minute); len(e.got) < n || s.owes(); s.pass() {
		require.True(s.t, time.Now().Before(end), "%d completions of %d", len(e.got), n)
	}
	require.Len(s.t, e.got, n)
	for _, w := range e.got {
		require.Equal(s.t, verbs.WCSuccess, w.Status, "%+v", w)
	}
	e.got = e.got[:0]
}

// owes reports whether an acknowledgement is to be sent.
func (s *script) owes() bool {
	return s.a.qp.(*qp).rsp.ackState == ackDue || s.b.qp.(*qp).rsp.ackState == ackDue
}

// post sends from a, and counts the packets that it takes.
func (s *script) post(wr verbs.SendWR, n int) {
	if wr.Flags&verbs.SendInline == 0 {
		wr.NumSG, wr.SG[0] = 1, s.a.sge(0, n)
	}
	s.packets += max(1, (n+s.mtu-1)/s.mtu)
	s.a.send(wr)
}

func (s *script) run() {
	b := s.b
	for _, n := range []int{0, 1, 8, 32, 33, 64, 100, 4095, 4096, 4097, 10_000, 20_480, 20_481, 61_440, 250_000, 1_000_000} {
		b.recv(1, 0, 1<<20)
		s.post(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled}, n)
		s.until(s.a, 1)
		s.until(b, 1)
		s.post(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.SendSignaled, Remote: b.mr.Addr(), RKey: b.mr.RKey()}, n)
		s.until(s.a, 1)
		s.post(verbs.SendWR{Op: verbs.OpRead, Flags: verbs.SendSignaled, Remote: b.mr.Addr(), RKey: b.mr.RKey()}, n)
		s.until(s.a, 1)
	}
	s.unsignalled()
	s.atomics()
	s.notReady()
	s.tick(time.Millisecond) // acknowledgements that nobody asked for
	for quiet := 0; quiet < 3; quiet++ {
		if s.pass() > 0 {
			quiet = 0
		}
		if s.a.qp.(*qp).req.una != s.a.qp.(*qp).req.psn {
			quiet = 0
		}
	}
}

// unsignalled sends without asking for completions, inline and with immediate
// data, in lists.
func (s *script) unsignalled() {
	imm := verbs.SendWR{Op: verbs.OpSendImm, Imm: 7, Flags: verbs.SendInline, InlineLen: 8}
	wimm := verbs.SendWR{Op: verbs.OpWriteImm, Imm: 8, Flags: verbs.SendInline, InlineLen: 16, Remote: s.b.mr.Addr(), RKey: s.b.mr.RKey()}
	for range 5 {
		s.b.recv(1, 0, 64)
		s.b.recv(2, 0, 64)
		s.post(imm, 8)
		s.until(s.b, 1)
		s.post(wimm, 16)
		s.until(s.b, 1)
	}
	last := imm
	last.Flags |= verbs.SendSignaled
	for range 3 {
		s.b.recv(3, 0, 64)
	}
	s.packets += 3
	n, st := s.a.qp.PostSend([]verbs.SendWR{imm, imm, last})
	require.Equal(s.t, ucs.OK, st)
	require.Equal(s.t, 3, n)
	s.until(s.a, 1)
	s.until(s.b, 3)
}

func (s *script) atomics() {
	binary.NativeEndian.PutUint64(s.b.buf, 5)
	for _, op := range []verbs.Opcode{verbs.OpFetchAdd, verbs.OpCompareSwap, verbs.OpFetchAdd} {
		s.post(verbs.SendWR{Op: op, Flags: verbs.SendSignaled, Compare: 8, Swap: 3, Remote: s.b.mr.Addr(), RKey: s.b.mr.RKey()}, 8)
		s.until(s.a, 1)
	}
	require.Equal(s.t, uint64(6), binary.NativeEndian.Uint64(s.b.buf))
}

// handleRNR has a message find no receive twice, and others behind it.
func (s *script) notReady() {
	told := func() uint64 { return value(s.t, s.b.device(), "device.rnr_naks") }
	pause := func() ucs.Time { return s.a.qp.(*qp).req.rnrWait }
	const behind = 3
	wrs := make([]verbs.SendWR, 1+behind)
	for i := range wrs {
		wrs[i] = verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{s.a.sge(0, 9)}}
	}
	s.packets += len(wrs)
	n, st := s.a.qp.PostSend(wrs)
	require.Equal(s.t, ucs.OK, st)
	require.Equal(s.t, len(wrs), n)
	for i := range uint64(2) {
		for end := time.Now().Add(time.Minute); told() == i || pause() == 0; s.pass() {
			require.True(s.t, time.Now().Before(end))
		}
		s.tick(0) // the wait begins with a look at the clock
		for range 10 {
			s.pass() // the sender waits its time out
		}
		require.Equal(s.t, i+1, told())
		for range wrs {
			if i == 1 {
				s.b.recv(1, 0, 64)
			}
		}
		s.tick(time.Millisecond)
	}
	s.until(s.b, len(wrs))
	s.until(s.a, len(wrs))
}

func (s *script) accounts() (all [2]account) {
	for i, e := range []*end{s.a, s.b} {
		q := e.qp.(*qp)
		x := &all[i]
		x.counters = make(map[string]uint64)
		for _, c := range e.device().Stats().Snapshot() {
			if !strings.HasPrefix(c.Name, LinkUDP) { // those of the socket
				x.counters[c.Name] = c.Value
			}
		}
		delete(x.counters, "device.locks") // of queues: in how many batches the test polls
		x.psn, x.una, x.expected, x.msn = q.req.psn, q.req.una, q.rsp.psn, q.rsp.msn
		x.sends, x.reads = q.req.head, q.rsp.numSaved
		x.window, x.place = q.req.window.cur, int(q.rsp.flags)
	}
	return all
}
