package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
)

// Tag identifies messages; a receive selects by it under a mask.
type Tag uint64

// maxInline is the longest TagSendInline if the transport allows it.
const maxInline = 256

// TagSend sends p as one message. The library owns p until the request completes.
// Messages of one endpoint are matched in the order in which they were sent.
//
// Posting is not sending: a message that waits for its connection, or for room, is sent
// when the worker progresses, and a long one when the receiver asks. With
// [ThreadMulti], once an rc or ud connection is established, the message is also sent
// without progress. With other modes the program has to call Progress or a wait.
//
//hot:bench BenchmarkTagPair
//go:nosplit
func (e Endpoint) TagSend(p []byte, tag Tag) Request {
	if l := e.lane(); len(p) <= l.maxShort {
		if len(p) == 8 { // the most frequent length, in fewer instructions
			if l.ep.AMUint64(wire.Eager, uint64(tag), binary.LittleEndian.Uint64(p)) == ucs.OK {
				return Request{}
			}
		} else if l.ep.AMShort(wire.Eager, uint64(tag), p) == ucs.OK {
			return Request{}
		}
	}
	return e.tagSendSlow(p, tag)
}

// lane returns the lane for the fast paths. It returns noLane, which forces the slow path,
// if the endpoint is not valid, and lane 0, which does the same, if it is not connected.
func (e Endpoint) lane() *lane {
	t, k := e.t, uint32(e.id)
	if t == nil || int(k) >= len(t.fastEps) {
		return &noLane
	}
	s := &t.fastEps[k]
	if s.gen != uint32(e.id>>32) || int(s.lane) >= len(t.lanes) {
		return &noLane
	}
	return &t.lanes[s.lane]
}

// TagSendInline sends a copy of p, at most MaxInline bytes. The caller owns p when it
// returns, and p may be on the stack.
//
//hot:bench BenchmarkTagSendInline
func (e Endpoint) TagSendInline(p []byte, tag Tag) Request {
	if l := e.lane(); len(p) <= min(l.maxShort, maxInline) {
		if l.ep.AMShort(wire.Eager, uint64(tag), noescape(p)) == ucs.OK {
			return Request{}
		}
	}
	return e.tagSendInlineSlow(p, tag)
}

// TagSendUint64 sends v as eight little-endian bytes.
//
//hot:bench BenchmarkTagSendUint64
func (e Endpoint) TagSendUint64(v uint64, tag Tag) Request {
	if l := e.lane(); l.maxShort >= 8 {
		if l.ep.AMUint64(wire.Eager, uint64(tag), v) == ucs.OK {
			return Request{}
		}
	}
	return e.tagSendUint64Slow(v, tag)
}

// TagSendV sends the pieces ps, at most 1024, as one message, which any receive can match. The
// library owns ps and the pieces until the request completes. The pieces are copied, also by
// a rendezvous in which a device would read one long buffer. More pieces are ErrInvalid.
func (e Endpoint) TagSendV(ps [][]byte, tag Tag) Request {
	t := e.thread()
	t.lock()
	defer t.unlock()
	v, st := newVec(ps)
	if st != ucs.OK {
		return t.refuse(request.TagSendV, e, st)
	}
	return t.tagSend(e, &sendParams{op: request.TagSendV, vec: v, tag: tag, n: int(v.n)})
}

// MaxInline returns the longest TagSendInline in bytes. It connects the endpoint. It
// returns 0 if that fails.
func (e Endpoint) MaxInline() int {
	w := e.thread()
	w.lock()
	defer w.unlock()
	k := w.endpoint(e)
	if k == 0 || w.ctx.features&FeatureTag == 0 || w.connect(k) != ucs.OK {
		return 0
	}
	l := &w.lanes[w.eps[k].lane]
	return min(max(l.ifaceMaxShort, l.maxBcopy), maxInline)
}

// TagRecv receives into p the oldest message whose tag equals tag in the bits of mask. If
// there is none it receives the next that arrives. The library owns p until the request
// completes. A message longer than p is truncated: ErrTruncated.
//
//hot:bench BenchmarkTagPair
//go:nosplit
func (w *Worker) TagRecv(p []byte, tag, mask Tag) RecvRequest {
	if w.t.tagSlow {
		return w.t.tagRecvShared(p, tag, mask)
	}
	b := &w.t.slab
	i := b.FreeList
	if i == 0 {
		i = b.Grow()
	}
	s := &b.Slots[i]
	b.FreeList = s.Next
	s.Op, s.State, s.Status, s.Flags = request.TagRecv, request.StateLive, ucs.OK, request.FlagHasResult
	s.EP, s.Lane, s.Parts, s.Mode = 0, 0, 0, uint32(recvPosted)
	if old := &b.Bufs[i]; cap(*old) == cap(p) && sameStart(*old, p) {
		// The slot's last buffer, and no pointer is stored: while the collector marks, the write barriers of 256 receives
		// fill its buffer, and emptying that takes 1.6 us.
		*old = (*old)[:len(p)]
	} else {
		*old = p
	}
	r := RecvRequest{Request{&w.t, uint64(s.Gen)<<32 | uint64(i)}}
	if w.t.matching.unexpQueue.Len() != 0 && w.t.matchUnexpected(i, uint64(tag), uint64(mask)) {
		return r
	}
	if posted := &w.t.matching.posted; !posted.AddToRun(i, uint64(tag), uint64(mask)) {
		posted.Add(i, uint64(tag), uint64(mask))
	}
	return r
}

// TagRecvV is TagRecv into the pieces ps, at most 1024, in their order. The message may have
// been sent as one buffer, or in other pieces. The library owns ps and the pieces until the
// request completes. The data is copied into the pieces. More pieces are ErrInvalid.
func (w *Worker) TagRecvV(ps [][]byte, tag, mask Tag) RecvRequest {
	t := &w.t
	t.lock()
	defer t.unlock()
	v, st := newVec(ps)
	if refused := t.refusesRecv(); refused != ucs.OK {
		st = refused
	}
	if st != ucs.OK {
		return RecvRequest{t.refuse(request.TagRecv, Endpoint{}, st)}
	}
	i := t.slab.Alloc(request.TagRecv)
	t.slab.Bufs[i] = nil
	t.slab.vecs[i] = v
	t.slab.Slots[i].Flags = request.FlagHasResult | request.FlagExtra
	r := RecvRequest{Request{t, t.slab.ID(i)}}
	if t.matching.unexpQueue.Len() == 0 || !t.matchUnexpected(i, uint64(tag), uint64(mask)) {
		t.matching.posted.Add(i, uint64(tag), uint64(mask))
	}
	return r
}

// TagSendSync is TagSend, but its request completes only after a receive has matched the
// message. ErrRejected: the receiver dropped the message, or its worker closed.
//
//hot:bench BenchmarkTagSync
func (e Endpoint) TagSendSync(p []byte, tag Tag) Request {
	t := e.thread()
	t.lock()
	r := t.tagSend(e, &sendParams{op: request.TagSendSync, buf: p, tag: tag, n: len(p), wants: sendSync})
	t.unlock()
	return r
}

// TagSendWith is TagSend with options. ForceEager sends p eagerly even if it is longer than
// UCX_RNDV_THRESH, unless the receiver's credit for unexpected messages is exhausted.
// ForceRendezvous uses rendezvous however short p is.
func (e Endpoint) TagSendWith(p []byte, tag Tag, o Opts) Request {
	if st := o.Flags.check(); st != ucs.OK {
		return e.thread().refuse(request.TagSend, e, st)
	}
	var wants sendWants
	switch {
	case o.Flags&ForceRendezvous != 0:
		wants = sendRndv
	case o.Flags&ForceEager != 0:
		wants = sendEager
	default:
		return e.TagSend(p, tag)
	}
	t := e.thread()
	t.lock()
	defer t.unlock()
	return t.tagSend(e, &sendParams{op: request.TagSend, buf: p, tag: tag, n: len(p), wants: wants})
}

// The fast paths of tag.go and request_recv.go, under the lock.

// tagSendSlow is TagSend for each thread mode. With ThreadMulti it is the fast path, too.
//
//go:noinline
func (e Endpoint) tagSendSlow(p []byte, tag Tag) Request {
	w := e.thread()
	if !w.locked {
		return w.tagSend(e, &sendParams{op: request.TagSend, buf: p, tag: tag, n: len(p)})
	}
	w.owner.lockShared()
	if k := uint32(e.id); int(k) < len(w.eps) && w.eps[k].gen == uint32(e.id>>32) && int(w.eps[k].lane) < len(w.lanes) {
		l, st := &w.lanes[w.eps[k].lane], ucs.NoResource // lane 0, if there is none, accepts nothing
		switch {
		case len(p) > l.maxShort:
		case len(p) == 8:
			st = l.ep.AMUint64(wire.Eager, uint64(tag), binary.LittleEndian.Uint64(p))
		default:
			st = l.ep.AMShort(wire.Eager, uint64(tag), p)
		}
		if st == ucs.OK {
			w.unlockShared()
			return Request{}
		}
	}
	r := w.tagSend(e, &sendParams{op: request.TagSend, buf: p, tag: tag, n: len(p)})
	w.unlockShared()
	return r
}

// refusesRecv returns the status with which the worker refuses tag receives; OK: it does not.
func (w *thread) refusesRecv() ucs.Status {
	if w.life.closing() {
		return ucs.Closed
	}
	return w.matching.lacking
}

// tagRecvShared is TagRecv.
//
//go:noinline
func (w *thread) tagRecvShared(p []byte, tag, mask Tag) RecvRequest {
	w.owner.lockShared()
	if w.life.closing() || w.matching.lacking != ucs.OK {
		st := w.refusesRecv()
		w.unlockShared()
		return RecvRequest{w.refuse(request.TagRecv, Endpoint{}, st)}
	}
	b := &w.slab
	i := b.Alloc(request.TagRecv)
	s := &b.Slots[i]
	s.Flags = request.FlagHasResult
	b.Bufs[i] = p
	r := RecvRequest{Request{w, uint64(s.Gen)<<32 | uint64(i)}}
	if w.matching.unexpQueue.Len() == 0 || !w.matchUnexpected(i, uint64(tag), uint64(mask)) {
		if posted := &w.matching.posted; !posted.AddToRun(i, uint64(tag), uint64(mask)) {
			posted.Add(i, uint64(tag), uint64(mask))
		}
	}
	w.unlockShared()
	return r
}

// consumeDone consumes the result of tag receive id if it has succeeded and has no state outside
// of its slot, as nearly all do. The caller holds the lock.
func (b *slab) consumeDone(id uint64) (Message, bool) {
	i, g := uint32(id), uint32(id>>32)
	if int(i) >= len(b.Slots) {
		return Message{}, false
	}
	s := &b.Slots[i]
	if s.Gen != g || s.Outcome() != request.ReceivedTag {
		return Message{}, false
	}
	s.Gen, s.State, s.Next = request.NextGen(g), request.StateFree, b.FreeList
	b.FreeList = i
	m := request.As[recvOp](s)
	return Message{Tag(m.tag), int(m.length)}, true
}
