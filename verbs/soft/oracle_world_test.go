package soft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/verbs"
)

// oracleDev is a device with what its queue pairs share.
type oracleDev struct {
	i           int
	d           *device
	pd, alienPD verbs.PD
	cq          verbs.CQ
	srq         verbs.SRQ
	srqRecvs    map[uint64]*recvBuf // that are queued
	srqMem      *memory
	counter     *memory // a word that all peers add to
	byQPN       map[verbs.QPN]*endpoint
	datagrams   *datagramEnd
	unreliable  map[verbs.QPN]*unreliableEnd
	open        []interface{ Close() error } // in the order of making
}

// memory is a registered region, given out piece by piece.
type memory struct {
	mr   verbs.MR
	buf  []byte
	next int
	gaps []int // where nothing must write
}

func (m *memory) room() int { return len(m.buf) - m.next }

func (v *oracleDev) memory(o *oracle, pd verbs.PD, size int, access verbs.Access) *memory {
	buf := make([]byte, size)
	mr, err := pd.Register(buf, verbs.MRConfig{Access: access})
	o.must(err)
	v.open = append(v.open, mr)
	return &memory{mr: mr, buf: buf}
}

func (o *oracle) must(err error) {
	if err != nil {
		o.fail("%v", err)
	}
}

// take gives n bytes, fewer where no more are left, at an alignment of 8.
func (m *memory) take(n int) (verbs.SGE, []byte) {
	m.next = (m.next + 7) &^ 7
	n = max(0, min(n, len(m.buf)-m.next-8))
	b := m.buf[m.next : m.next+n]
	s := verbs.SGE{Addr: m.mr.Addr() + uint64(m.next), Len: uint32(n), LKey: m.mr.LKey()}
	m.gaps = append(m.gaps, m.next+n)
	m.next += n + 8
	return s, b
}

// rewind takes back what was given out since.
func (m *memory) rewind(to *memory) {
	clear(m.buf[to.next:m.next])
	m.next, m.gaps = to.next, m.gaps[:len(to.gaps)]
}

const (
	most       = 42 // work requests and receives of an endpoint, about
	windowSize = 16 << 10
	sqDepth    = 24
	rqDepth    = 128
)

// endpoint is a queue pair, as requester and as responder.
type endpoint struct {
	o    *oracle
	name string
	dev  *oracleDev
	peer *endpoint
	qp   verbs.QP
	mtu  int
	sig  bool // all work requests are signalled
	srq  bool

	arena  *memory // where the endpoint's own data come from and go to
	window *memory // that the peer writes, reads and adds to
	base   []byte  // the peer's window as it was
	model  []byte  // the same after all that was posted
	closed *memory // that peers must not touch
	alien  *memory // of another protection domain
	fixed  *memory // without local write

	windows []*oracleWindow // for the peer
	unbound uint32          // key of one that is never bound
	stale   []uint32        // keys that are invalid

	plan     *plan
	total    int   // work requests to post
	ops      []*op // posted
	msgs     []*op // those that take a receive of the peer
	next     int   // the first op that has not ended
	failed   bool  // an op ended with an error, the first at failedAt with firstErr
	failedAt int
	firstErr verbs.WCStatus
	killed   bool // by Modify

	recvs    []*recvBuf // posted, in order
	recvNext int        // the next of them to complete
	recvDone int        // messages of the peer that came
	recvErr  bool       // receives were flushed, or failed
}

// recvBuf is a posted receive.
type recvBuf struct {
	id  uint64
	sgs []verbs.SGE
	mem [][]byte
}

func (o *oracle) open(seed uint64, trace bool) {
	conf := Config{MTU: verbs.MTU4096}
	probe := sim.New(seed)
	o.rng = probe.Rand()
	n := 1 + o.rng.IntN(3)
	if o.chance(0.5) {
		conf.Window = 1 + o.rng.IntN(60)
	}
	if o.chance(0.3) {
		conf.Faults = o.randomFaults()
	}
	w, err := newSimWorld(seed, n, conf)
	o.must(err)
	o.simWorld = w
	if trace {
		o.net.KeepTrace(400, describePacket)
	}
	for i := range n {
		for j := range n {
			o.net.SetLink(w.devs[i].fabricAddr(), w.devs[j].fabricAddr(), o.randomLink())
		}
		o.devs = append(o.devs, o.openDev(i, w.devs[i]))
	}
	o.olds = make([]map[uint64]bool, n)
	o.adds = make([]int, n)
	for i := range n {
		o.olds[i] = make(map[uint64]bool)
	}
	for i := range 1 + o.rng.IntN(3) {
		o.connect(i, pick(o, o.devs...), pick(o, o.devs...))
	}
	o.openDatagrams()
	o.openUnreliable()
	if n > 1 && o.chance(0.3) {
		at := o.net.Now().Add(time.Duration(o.rng.IntN(2000)) * time.Microsecond)
		o.net.Partition([]netip.AddrPort{w.devs[0].fabricAddr()}, []netip.AddrPort{w.devs[1].fabricAddr()}, at, at.Add(time.Duration(o.rng.IntN(1000))*time.Microsecond))
	}
}

func (o *oracle) openDev(i int, d *device) *oracleDev {
	v := &oracleDev{i: i, d: d, byQPN: make(map[verbs.QPN]*endpoint), srqRecvs: make(map[uint64]*recvBuf), unreliable: make(map[verbs.QPN]*unreliableEnd)}
	var err error
	v.pd, err = d.AllocPD()
	o.must(err)
	v.alienPD, err = d.AllocPD()
	o.must(err)
	v.cq, err = d.CreateCQ(verbs.CQConfig{Depth: 4096})
	o.must(err)
	v.srq, err = v.pd.CreateSRQ(verbs.SRQAttr{MaxWR: rqDepth, MaxSGE: verbs.MaxSGE})
	o.must(err)
	v.open = append(v.open, v.pd, v.alienPD, v.cq, v.srq)
	v.counter = v.memory(o, v.pd, 64, verbs.LocalWrite|verbs.RemoteAtomic)
	return v
}

// domain returns the domain for a queue pair: in runs with threads a thread domain of its own.
func (v *oracleDev) domain(o *oracle) verbs.PD {
	if !o.threads {
		return v.pd
	}
	td, err := v.d.AllocTD(verbs.TDConfig{})
	o.must(err)
	p, err := v.pd.Parent(td)
	o.must(err)
	v.open = append(v.open, td, p)
	return p
}

const allAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

// connect makes a pair of endpoints, with what will go wrong between them.
func (o *oracle) connect(i int, da, db *oracleDev) {
	s := &rcSetup{
		mtu: pick(o, verbs.MTU256, verbs.MTU256, verbs.MTU512, verbs.MTU1024, verbs.MTU4096), timeout: uint8(7 + o.rng.IntN(3)),
		retry: 7, rnrRetry: [2]uint8{7, 7}, rnrTimer: uint8(1 + o.rng.IntN(8)), access: allAccess,
	}
	if o.chance(0.5) {
		s.features, s.timeout = verbs.PeerProbe, s.timeout+uint8(o.rng.IntN(4))
	}
	var e [2]*endpoint
	for side, v := range [2]*oracleDev{da, db} {
		s.psn[side] = verbs.PSN(pick(o, o.rng.Uint32()&0xffffff, 0xffffff-uint32(o.rng.IntN(20))))
		s.reads[side] = uint8(1 + o.rng.IntN(4))
		e[side] = &endpoint{
			o: o, name: fmt.Sprintf("%d%c", i, 'a'+side), dev: v, mtu: s.mtu.Bytes(), sig: o.chance(0.2), srq: o.chance(0.3),
			arena:  v.memory(o, v.pd, 2*(most+8)*(min(windowSize/2, 6*s.mtu.Bytes())+64), verbs.LocalWrite),
			window: v.memory(o, v.pd, windowSize, allAccess|verbs.BindMW),
			closed: v.memory(o, v.pd, 4096, verbs.LocalWrite),
			alien:  v.memory(o, v.alienPD, 4096, allAccess),
			fixed:  v.memory(o, v.pd, 4096, 0),
			model:  make([]byte, windowSize), total: 12 + o.rng.IntN(most-12),
		}
	}
	e[0].peer, e[1].peer = e[1], e[0]
	for _, x := range e {
		x.openWindows()
	}
	for side, x := range e {
		if o.chance(0.25) {
			x.plan = o.randomPlan(x)
			if x.plan.rnr {
				s.rnrRetry[side] = uint8(o.rng.IntN(3))
			}
			if x.plan.recv != 0 || x.plan.rnr {
				x.peer.srq = false
			}
		}
		fill(o, x.window.buf)
		copy(x.peer.model, x.window.buf)
		x.peer.base = slices.Clone(x.window.buf)
	}
	for _, x := range e {
		c := verbs.QPConfig{
			Type: verbs.RC, SendCQ: x.dev.cq, RecvCQ: x.dev.cq, SignalAll: x.sig,
			Caps: verbs.QPCaps{MaxSend: sqDepth, MaxRecv: rqDepth, MaxSendSGE: verbs.MaxSGE, MaxRecvSGE: verbs.MaxSGE, MaxInline: verbs.InlineLen},
		}
		if x.srq {
			if x.dev.srqMem == nil {
				x.dev.srqMem = x.dev.memory(o, x.dev.pd, 6*most*windowSize/2, verbs.LocalWrite)
			}
			c.SRQ = x.dev.srq
		}
		var err error
		x.qp, err = x.dev.domain(o).CreateQP(c)
		o.must(err)
		x.dev.open = append(x.dev.open, x.qp)
		x.dev.byQPN[x.qp.QPN()] = x
		o.eps = append(o.eps, x)
	}
	o.must(connectRC(e[0].qp, e[1].qp, da.d, db.d, s))
}

func fill(o *oracle, b []byte) {
	for i := range b {
		b[i] = byte(o.rng.Uint32())
	}
}

// close takes everything down, in the reverse order of making.
func (o *oracle) close() {
	for _, v := range o.devs {
		for i := len(v.open) - 1; i >= 0; i-- {
			o.must(v.open[i].Close())
		}
		o.must(v.d.Close())
	}
}

// describe tells the state of all endpoints.
func (o *oracle) describe() string {
	var b strings.Builder
	for _, e := range o.eps {
		fmt.Fprintf(&b, "%s: qp %#x on device %d, state %d, mtu %d, ops %d/%d ended %d, messages %d, receives posted %d done %d errors %v, failed %v, plan %+v\n",
			e.name, uint32(e.qp.QPN()), e.dev.i, e.qp.Query().State, e.mtu, len(e.ops), e.total, e.next, len(e.msgs), len(e.recvs), e.recvDone, e.recvErr, e.failed, e.plan)
		for i := e.next; i < len(e.ops); i++ {
			x := e.ops[i]
			fmt.Fprintf(&b, "   %d: op %v flags %v len %d off %d\n", i, x.wr.Op, x.wr.Flags, len(x.data)+len(x.expect), x.off)
		}
	}
	return b.String()
}
