package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// swKind is the kind of reply that an operation waits for.
type swKind uint8

const (
	swGet     swKind = iota // data
	swGetWord               // eight bytes of data, the operation's value
	swFetch                 // a value
	swSync                  // all requests before it were carried out
)

// swOp is an emulated operation that waits for the owner's reply.
type swOp struct {
	gen    uint32 // 31 bits, never 0; incremented when the entry is released
	next   uint32 // in the free list
	live   bool
	kind   swKind
	lane   uint32
	number uint64    // number of the request on its lane
	token  uct.Token // of the operation
	addr   uint64    // of a get: address of the data still to come, from which its place in the buffer follows
	left   uint64    // of a get: bytes still to come
	value  uint64
	got    int // bytes of value received
}

// swOps holds the emulated operations of a worker that wait for a reply.
type swOps struct {
	ops  []swOp // entry 0 is none
	free uint32
	es   [1]uct.Event
}

// take stores o and returns the id that the owner uses in its reply.
func (t *swOps) take(o swOp) uint64 {
	if t.free == 0 {
		t.grow()
	}
	i := t.free
	p := &t.ops[i]
	gen := p.gen
	t.free = p.next
	*p = o
	p.gen, p.live = gen, true
	return uint64(gen)<<32 | uint64(i)
}

func (t *swOps) grow() {
	n := max(len(t.ops), 1)
	t.ops = append(t.ops, make([]swOp, n+swMaxWaits-len(t.ops))...)
	for i := len(t.ops) - 1; i >= n; i-- {
		t.ops[i].gen, t.ops[i].next = 1, t.free
		t.free = uint32(i)
	}
}

func (t *swOps) release(i uint32) {
	o := &t.ops[i]
	*o = swOp{gen: nextGen(o.gen), next: t.free}
	t.free = i
}

// swNamed returns the operation with this id if the sender of s is its owner. It returns 0
// if the operation has completed. Any other id fails s.
func (p *port) swNamed(s *source, id uint64) uint32 {
	w := p.w
	i, gen := uint32(id), uint32(id>>32)
	if s.peer == 0 || i == 0 || int(i) >= len(w.sw.ops) || gen == 0 || gen > genMask {
		p.garbage(s)
		return 0
	}
	o := &w.sw.ops[i]
	switch {
	case o.gen != gen && (o.gen-gen)&genMask <= genMask/2:
		w.count.Inc(cntStale)
		return 0
	case o.gen != gen || !o.live || w.t.lanes[o.lane].peer != s.peer:
		p.garbage(s)
		return 0
	}
	return i
}

// swGot receives the next bytes of a get.
func (p *port) swGot(s *source, id uint64, data []byte) {
	i := p.swNamed(s, id)
	if i == 0 {
		return
	}
	w := p.w
	o := &w.sw.ops[i]
	switch {
	case o.kind == swGet && len(data) > 0 && uint64(len(data)) <= o.left:
		if k := w.slab.find(uint64(o.token)); k != 0 && w.slab.slots[k].state == slotLive { // otherwise the caller owns the buffer again
			copyWhole(w.slab.bufs[k][o.addr-w.slab.slots[k].arg:][:len(data)], data)
		}
		o.addr += uint64(len(data))
		if o.left -= uint64(len(data)); o.left == 0 {
			w.swEnd(i, ucs.OK)
		}
	case o.kind == swGetWord && len(data) > 0 && len(data) <= 8-o.got:
		var b [8]byte
		copy(b[o.got:], data)
		o.value |= binary.LittleEndian.Uint64(b[:])
		if o.got += len(data); o.got == 8 {
			w.swEnd(i, ucs.OK)
		}
	default:
		p.garbage(s)
	}
}

// swDone receives a reply without data.
func (p *port) swDone(s *source, id uint64, data []byte) {
	i := p.swNamed(s, id)
	if i == 0 {
		return
	}
	w := p.w
	o := &w.sw.ops[i]
	st := ucs.RemoteAccess
	switch {
	case len(data) != swDoneLen,
		payloadUint64(data, 1) != uint64(ucs.OK) && payloadUint64(data, 1) != uint64(ucs.RemoteAccess),
		payloadUint64(data, 1) == uint64(ucs.OK) && o.kind < swFetch:
		p.garbage(s)
		return
	case payloadUint64(data, 1) == uint64(ucs.OK):
		st = ucs.OK
	}
	o.value = payloadUint64(data, 0)
	w.swEnd(i, st)
}

// swEnd completes operation i, whose reply has arrived, and resumes what waited for it.
func (w *Worker) swEnd(i uint32, st ucs.Status) {
	o := w.sw.ops[i]
	e := w.t.lanes[o.lane].sw
	e.handled = max(e.handled, o.number)
	if o.kind == swSync {
		e.synced = max(e.synced, o.number)
		if e.err == ucs.OK {
			e.err = st
		}
		st = ucs.OK
		if k := w.slab.find(uint64(o.token)); w.slab.slots[k].op == opFlush {
			st = e.takeErr()
		}
	}
	w.swFinish(i, st)
	w.tryResumeLane(o.lane)
}

// swFinish releases operation i and completes the request that it belongs to.
func (w *Worker) swFinish(i uint32, st ucs.Status) {
	o := w.sw.ops[i]
	l := &w.t.lanes[o.lane]
	if o.kind != swSync {
		l.sw.waits--
	}
	w.sw.release(i)
	w.sw.es[0] = uct.Event{Token: o.token, Value: o.value, Status: st}
	w.ports[l.port].HandleEvents(w.sw.es[:])
}

// swLost completes with st the operations that wait for replies to requests on a lane that
// has failed or closes.
func (w *Worker) swLost(lane uint32, st ucs.Status) {
	if w.t.lanes[lane].sw == nil {
		return
	}
	for i := 0; i < len(w.sw.ops); i++ { // a completed operation may begin others
		if o := &w.sw.ops[i]; o.live && o.lane == lane {
			w.swFinish(uint32(i), st)
		}
	}
}
