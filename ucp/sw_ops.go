package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// swKind is what an answer is awaited for.
type swKind uint8

const (
	swGet     swKind = iota // data
	swGetWord               // eight bytes of data, the operation's value
	swFetch                 // a value
	swSync                  // that all before it was done
)

// swOp is a software operation that the owner has to answer.
type swOp struct {
	gen    uint32 // 31 bits, never 0; goes up when the place is used again
	next   uint32 // of the free list
	live   bool
	kind   swKind
	lane   uint32
	number uint64    // among the lane's requests
	token  uct.Token // of the operation
	addr   uint64    // of a get: of the rest of the data, whose place in the buffer follows from it
	left   uint64    // of a get: bytes that are to come
	value  uint64
	got    int // bytes of value
}

// swOps holds the software operations of a worker that await an answer.
type swOps struct {
	ops  []swOp // 0 is none
	free uint32
	es   [1]uct.Event
}

// take keeps o and gives the id by which the owner answers it.
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

// swNamed gives the operation that the sender of s answers by id, 0 where it has
// ended. Anything else fails s.
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
		w.count.Inc(cntLate)
		return 0
	case o.gen != gen || !o.live || w.t.lanes[o.lane].peer != s.peer:
		p.garbage(s)
		return 0
	}
	return i
}

// swGot takes in the next bytes that a get asked for.
func (p *port) swGot(s *source, id uint64, data []byte) {
	i := p.swNamed(s, id)
	if i == 0 {
		return
	}
	w := p.w
	o := &w.sw.ops[i]
	switch {
	case o.kind == swGet && len(data) > 0 && uint64(len(data)) <= o.left:
		if k := w.slab.find(uint64(o.token)); k != 0 && w.slab.slots[k].state == slotLive { // else the buffer is the program's again
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

// swDone takes in an answer without data.
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
		word(data, 1) != uint64(ucs.OK) && word(data, 1) != uint64(ucs.RemoteAccess),
		word(data, 1) == uint64(ucs.OK) && o.kind < swFetch:
		p.garbage(s)
		return
	case word(data, 1) == uint64(ucs.OK):
		st = ucs.OK
	}
	o.value = word(data, 0)
	w.swEnd(i, st)
}

// swEnd ends operation i, which was answered, and lets go on what waited for it.
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
	w.swLift(o.lane)
}

// swFinish forgets operation i and ends what it is of.
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

// swLost ends with st what awaits answers to requests by a lane that ends.
func (w *Worker) swLost(lane uint32, st ucs.Status) {
	if w.t.lanes[lane].sw == nil {
		return
	}
	for i := 0; i < len(w.sw.ops); i++ { // who hears of it may begin others
		if o := &w.sw.ops[i]; o.live && o.lane == lane {
			w.swFinish(uint32(i), st)
		}
	}
}
