package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// emulKind is the kind of reply that an operation waits for.
type emulKind uint8

const (
	emulGet     emulKind = iota // data
	emulGetWord                 // eight bytes of data, the operation's value
	emulFetch                   // a value
	emulSync                    // all requests before it were carried out
)

// emulOp is an emulated operation that waits for the owner's reply.
type emulOp struct {
	gen    uint32 // 31 bits, never 0; incremented when the entry is released
	next   uint32 // in the free list
	live   bool
	kind   emulKind
	lane   uint32
	number uint64    // number of the request on its lane
	token  uct.Token // of the operation
	addr   uint64    // of a get: address of the data still to come, from which its place in the buffer follows
	left   uint64    // of a get: bytes still to come
	value  uint64
	got    int // bytes of value received
}

// emulOps holds the emulated operations of a worker that wait for a reply.
type emulOps struct {
	ops  []emulOp // entry 0 is none
	free uint32
	es   [1]uct.Event
}

// alloc stores o and returns the id that the owner uses in its reply.
func (t *emulOps) alloc(o emulOp) uint64 {
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

func (t *emulOps) grow() {
	n := max(len(t.ops), 1)
	t.ops = append(t.ops, make([]emulOp, n+emulMaxReplies-len(t.ops))...)
	for i := len(t.ops) - 1; i >= n; i-- {
		t.ops[i].gen, t.ops[i].next = 1, t.free
		t.free = uint32(i)
	}
}

func (t *emulOps) release(i uint32) {
	o := &t.ops[i]
	*o = emulOp{gen: nextGen(o.gen), next: t.free}
	t.free = i
}

// emulOpByID returns the operation with this id if the sender of s is its owner. It returns 0
// if the operation has completed. Any other id fails s.
func (wi *workerIface) emulOpByID(rx *rxConn, id uint64) uint32 {
	w := wi.w
	i, gen := uint32(id), uint32(id>>32)
	if rx.peer == 0 || i == 0 || int(i) >= len(w.emul.ops) || gen == 0 || gen > genMask {
		wi.protocolError(rx)
		return 0
	}
	o := &w.emul.ops[i]
	switch {
	case o.gen != gen && (o.gen-gen)&genMask <= genMask/2:
		w.count.Inc(cntStale)
		return 0
	case o.gen != gen || !o.live || w.t.lanes[o.lane].peer != rx.peer:
		wi.protocolError(rx)
		return 0
	}
	return i
}

// handleGetReply receives the next bytes of a get.
func (wi *workerIface) handleGetReply(rx *rxConn, id uint64, data []byte) {
	i := wi.emulOpByID(rx, id)
	if i == 0 {
		return
	}
	w := wi.w
	o := &w.emul.ops[i]
	switch {
	case o.kind == emulGet && len(data) > 0 && uint64(len(data)) <= o.left:
		if k := w.slab.find(uint64(o.token)); k != 0 && w.slab.slots[k].state == slotLive { // otherwise the caller owns the buffer again
			copyWhole(w.slab.bufs[k][o.addr-w.slab.slots[k].arg:][:len(data)], data)
		}
		o.addr += uint64(len(data))
		if o.left -= uint64(len(data)); o.left == 0 {
			w.emulReplied(i, ucs.OK)
		}
	case o.kind == emulGetWord && len(data) > 0 && len(data) <= 8-o.got:
		var b [8]byte
		copy(b[o.got:], data)
		o.value |= binary.LittleEndian.Uint64(b[:])
		if o.got += len(data); o.got == 8 {
			w.emulReplied(i, ucs.OK)
		}
	default:
		wi.protocolError(rx)
	}
}

// handleReply receives a reply without data.
func (wi *workerIface) handleReply(rx *rxConn, id uint64, data []byte) {
	i := wi.emulOpByID(rx, id)
	if i == 0 {
		return
	}
	w := wi.w
	o := &w.emul.ops[i]
	st := ucs.RemoteAccess
	switch {
	case len(data) != emulReplyLen,
		payloadUint64(data, 1) != uint64(ucs.OK) && payloadUint64(data, 1) != uint64(ucs.RemoteAccess),
		payloadUint64(data, 1) == uint64(ucs.OK) && o.kind < emulFetch:
		wi.protocolError(rx)
		return
	case payloadUint64(data, 1) == uint64(ucs.OK):
		st = ucs.OK
	}
	o.value = payloadUint64(data, 0)
	w.emulReplied(i, st)
}

// emulReplied completes operation i, whose reply has arrived, and resumes what waited for it.
func (w *Worker) emulReplied(i uint32, st ucs.Status) {
	o := w.emul.ops[i]
	e := w.t.lanes[o.lane].emul
	e.handled = max(e.handled, o.number)
	if o.kind == emulSync {
		e.flushed = max(e.flushed, o.number)
		if e.err == ucs.OK {
			e.err = st
		}
		st = ucs.OK
		if k := w.slab.find(uint64(o.token)); w.slab.slots[k].op == opFlush {
			st = e.takeErr()
		}
	}
	w.completeEmul(i, st)
	w.tryResumeLane(o.lane)
}

// completeEmul releases operation i and completes the request that it belongs to.
func (w *Worker) completeEmul(i uint32, st ucs.Status) {
	o := w.emul.ops[i]
	l := &w.t.lanes[o.lane]
	if o.kind != emulSync {
		l.emul.outstanding--
	}
	w.emul.release(i)
	w.emul.es[0] = uct.Event{Token: o.token, Value: o.value, Status: st}
	w.ifaces[l.iface].HandleEvents(w.emul.es[:])
}

// failEmulOps completes with st the operations that wait for replies to requests on a lane that
// has failed or closes.
func (w *Worker) failEmulOps(lane uint32, st ucs.Status) {
	if w.t.lanes[lane].emul == nil {
		return
	}
	for i := 0; i < len(w.emul.ops); i++ { // a completed operation may begin others
		if o := &w.emul.ops[i]; o.live && o.lane == lane {
			w.completeEmul(uint32(i), st)
		}
	}
}
