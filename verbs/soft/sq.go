package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// wqe is a send work request in the send queue. The fields that the fast path needs
// come first.
type wqe struct {
	id                       uint64
	op                       verbs.Opcode
	flags                    verbs.SendFlags
	nsg                      uint8
	done                     bool           // response received, or executed: READs, atomics and local operations
	started                  bool           // sent before, at least in part, and to be retransmitted
	status                   verbs.WCStatus // of a local failure; reported when all before it have completed
	n                        uint32         // bytes
	numPSNs                  uint32         // number of PSNs that it takes
	psn                      verbs.PSN
	received                 uint32 // bytes of a READ's response received
	inline                   [verbs.InlineLen]byte
	imm                      uint32
	rkey                     uint32
	remote                   uint64
	swapOrQPN, compareOrQKey uint64 // swap and compare value; of a datagram: destination QPN and Q_Key
	ah                       *ah    // of a datagram: the address handle found when it was posted; nil: there was none
	bind                     *mr    // of OpBindMW: the binding, until it is executed
	sg                       [verbs.MaxSGE]verbs.SGE
}

// sendQueue is a queue pair's send queue: a ring that starts empty and doubles when
// full. Posters write beyond tail and hold the lock in the owner word. The owner reads
// what lies before tail.
type sendQueue struct {
	max  uint32
	ring []wqe
	// long holds inline data above verbs.InlineLen, longSlot bytes for each slot of the
	// ring; nil if the queue pair has no such data.
	long     []byte
	longSlot int
	nextPSN  verbs.PSN // PSN of the next posted request
	tail     cursor
	head     atomic.Uint32 // copy of requester.head for the posters
	counts   sendCounts    // counters of the posters
	bind     *mr           // of the bind that is being posted; written with the posters' lock
}

// end returns the running number after the last posted work request.
func (s *sendQueue) end() uint32 { return uint32(s.tail.pos()) }

const minSends = 4

// at returns the work request with that running number.
func (s *sendQueue) at(i uint32) *wqe { return &s.ring[i&uint32(len(s.ring)-1)] }

// post queues wrs in order and publishes them: the store of tail pairs with the load in
// end. The caller holds the posters' lock. If owned is set it also owns the queue pair.
func (q *qp) post(wrs []verbs.SendWR, owned bool) (int, ucs.Status) {
	s := &q.sq
	st := ucs.OK
	t := s.tail.pos()
	n := 0
	for ; n < len(wrs); n++ {
		if uint32(t)-s.head.Load() >= uint32(len(s.ring)) && !q.growSends(uint32(t), owned) {
			st = ucs.NoResource
			break
		}
		if st = q.fillWQE(uint32(t), &wrs[n]); st != ucs.OK {
			break
		}
		t++
	}
	s.counts.post(n)
	if q.uuar != nil && n > 0 {
		q.ringDoorbell(s.at(uint32(t)-1), n)
	}
	s.tail.publish(t)
	return n, st
}

// growSends doubles the ring. It returns false if the queue has its full size. The
// caller holds the posters' lock; it has filled the ring up to tail, but not published
// the new entries yet. It waits for the owner if that is another goroutine. This cannot
// deadlock, because an owner never waits for the posters' lock.
func (q *qp) growSends(tail uint32, owned bool) bool {
	s := &q.sq
	if uint32(len(s.ring)) >= s.max {
		return false
	}
	ring := make([]wqe, max(minSends, 2*len(s.ring)))
	long := make([]byte, len(ring)*s.longSlot)
	if !owned {
		q.acquire()
	}
	for i := s.head.Load(); i != tail; i++ {
		k := i & uint32(len(ring)-1)
		w := &ring[k]
		*w = *s.at(i)
		if w.hasLongInline() {
			data := s.inlineData(w)
			w.sg[0].Addr = uint64(k) * uint64(s.longSlot)
			copy(long[w.sg[0].Addr:], data)
		}
	}
	s.ring, s.long = ring, long
	count(&s.counts.ring, uint64(len(ring))-s.counts.ring)
	if !owned {
		q.transmitAndRelease()
	}
	return true
}

// hasLongInline reports whether w's inline data is in sendQueue.long, at sg[0].Addr.
func (w *wqe) hasLongInline() bool { return w.flags&verbs.SendInline != 0 && w.n > verbs.InlineLen }

// inlineData returns the inline data of w.
func (s *sendQueue) inlineData(w *wqe) []byte {
	if !w.hasLongInline() {
		return w.inline[:]
	}
	at := w.sg[0].Addr
	return s.long[at : at+uint64(w.n)]
}

// fillWQE stores r in the work request with number t, or returns why it cannot be posted.
func (q *qp) fillWQE(t uint32, r *verbs.SendWR) ucs.Status {
	w := q.sq.at(t)
	if q.fitsFast(r) {
		q.fillFast(w, r)
		return ucs.OK
	}
	switch {
	case r.Op >= 32 || q.ops>>r.Op&1 == 0, r.Op == verbs.OpBindMW && q.sq.bind == nil, int(r.NumSG) > q.caps.MaxSendSGE:
		return ucs.InvalidParam
	case r.Flags&verbs.SendInline != 0 && (inlineOps>>r.Op&1 == 0 || r.NumSG == 0 && int(r.InlineLen) > min(q.caps.MaxInline, verbs.InlineLen)):
		return ucs.InvalidParam
	case atomicOps>>r.Op&1 != 0 && (r.NumSG != 1 || r.SG[0].Len != 8):
		return ucs.InvalidParam
	}
	w.id, w.op, w.flags, w.nsg = r.ID, r.Op, r.Flags, r.NumSG
	w.done, w.started, w.status, w.received = false, false, verbs.WCSuccess, 0
	w.imm, w.remote, w.rkey = r.Imm, r.Remote, r.RKey
	w.swapOrQPN, w.compareOrQKey = r.Swap, r.Compare
	n := uint64(0)
	for i := range r.NumSG {
		w.sg[i] = r.SG[i]
		n += uint64(r.SG[i].Len)
	}
	if n > uint64(q.d.attr.MaxMessage) {
		return ucs.InvalidParam
	}
	switch {
	case r.Flags&verbs.SendInline == 0:
	case r.NumSG == 0:
		n = uint64(r.InlineLen)
		copy(w.inline[:], r.Inline[:n])
	case n > uint64(q.caps.MaxInline):
		return ucs.InvalidParam
	default: // gather the data now
		w.n = uint32(n)
		w.sg[0].Addr = uint64(t&uint32(len(q.sq.ring)-1)) * uint64(q.sq.longSlot) // for long data
		to := q.sq.inlineData(w)
		if q.postLock == 0 { // a region that closes waits while the bit is set
			q.word.Or(ownPost)
		}
		q.markMemoryUser()
		ok := true
		for i := uint8(0); i < r.NumSG && ok; i++ {
			var b []byte
			b, ok = q.d.local(q.pd, r.SG[i], 0)
			to = to[copy(to, b):]
		}
		if q.postLock == 0 {
			q.word.And(^uint32(ownPost))
		}
		if !ok {
			return ucs.InvalidParam
		}
	}
	w.n = uint32(n)
	if q.typ == verbs.UD {
		w.ah, w.swapOrQPN, w.compareOrQKey = q.d.ahs.find(r.AH), uint64(r.QPN), uint64(r.QKey)
	}
	if n > 0 && r.Flags&verbs.SendInline == 0 && fetchOps>>r.Op&1 != 0 {
		count(&q.sq.counts.fetches, 1)
	}
	w.numPSNs = 1
	if n > uint64(q.mtu) && q.typ != verbs.UD {
		w.numPSNs = uint32((n + uint64(q.mtu) - 1) / uint64(q.mtu))
	}
	if localOps>>r.Op&1 != 0 {
		w.numPSNs, w.bind, q.sq.bind = 0, q.sq.bind, nil
	}
	w.psn = q.sq.nextPSN
	q.sq.nextPSN = w.psn.Add(int(w.numPSNs))
	return ucs.OK
}

// fitsFast reports whether fillFast can store r.
func (q *qp) fitsFast(r *verbs.SendWR) bool {
	return fastOps>>r.Op&1 != 0 && r.Flags&verbs.SendInline != 0 && r.NumSG == 0 && int(r.InlineLen) <= q.fastInline
}

// fillFast is fill for inline data on an RC queue pair, no longer than q.inlined.
func (q *qp) fillFast(w *wqe, r *verbs.SendWR) {
	w.id, w.op, w.flags, w.nsg = r.ID, r.Op, r.Flags, 0
	w.done, w.started, w.status, w.received = false, false, verbs.WCSuccess, 0
	w.n, w.numPSNs, w.psn = uint32(r.InlineLen), 1, q.sq.nextPSN
	w.imm, w.remote, w.rkey = r.Imm, r.Remote, r.RKey
	if r.InlineLen <= smallLen {
		*(*[smallLen]byte)(w.inline[:]) = *(*[smallLen]byte)(r.Inline[:])
	} else {
		w.inline = r.Inline
	}
	q.sq.nextPSN = w.psn.Add(1)
}

// sendOps are the opcodes that a queue pair type accepts.
var sendOps = map[verbs.QPType]uint32{
	verbs.RC: 1<<verbs.OpWrite | 1<<verbs.OpWriteImm | 1<<verbs.OpSend | 1<<verbs.OpSendImm | 1<<verbs.OpRead |
		1<<verbs.OpCompareSwap | 1<<verbs.OpFetchAdd | 1<<verbs.OpLocalInv | 1<<verbs.OpBindMW | 1<<verbs.OpSendInv,
	verbs.UC: 1<<verbs.OpWrite | 1<<verbs.OpWriteImm | 1<<verbs.OpSend | 1<<verbs.OpSendImm | localOps,
	verbs.UD: 1<<verbs.OpSend | 1<<verbs.OpSendImm,
}

// inlineOps are the operations that may carry inline data.
const inlineOps = 1<<verbs.OpWrite | 1<<verbs.OpWriteImm | 1<<verbs.OpSend | 1<<verbs.OpSendImm | 1<<verbs.OpSendInv

// fastOps are the operations of the fast path: their messages have only data and, for
// a WRITE, its address.
const fastOps = 1<<verbs.OpWrite | 1<<verbs.OpSend

// plainOps are the operations that take PSNs and complete when the last is
// acknowledged.
const plainOps = inlineOps

// localOps are the operations that take no packet.
const localOps = 1<<verbs.OpLocalInv | 1<<verbs.OpBindMW

const atomicOps = 1<<verbs.OpCompareSwap | 1<<verbs.OpFetchAdd
