package shm

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/uct"
)

// A message is published in this order: its header and payload are stored into a free cell or into
// the bulk area; then the cell's first word with its sequence number (Publish); then the sender loads
// the peer's armed word and the ring's polled flag.
//
// Invariant: a receiver that sees the sequence number sees the whole message. Publish is a release
// store, and the receiver's poll is an acquire load. A process that dies before Publish leaves
// nothing that the receiver reads.
//
// The load of the armed word may pass the store of Publish on every CPU. The receiver then could
// sleep on a message. arm.go has the barrier that prevents it.

// prefetchMax is the maximum message size for which the next lines are prefetched for
// write. A copy of this size takes about as long as the transfer of its lines.
const prefetchMax = 2048

// demoteMax is the maximum length of a reply whose lines are demoted: as many lines as a core requests at the same
// time. 1,024 bytes arrive in 0.39 instead of 0.50 us. With 1,200 bytes there is no gain.
const demoteMax = 1024

// AMShort sends an active message.
//
//hot:bench BenchmarkAMShort
//go:nosplit
func (e *ep) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	if len(p) > ring.InlineMax || id >= uct.NumAMIDs {
		return e.shortSlow(id, hdr, p)
	}
	if !e.tx.Room() && e.tx.Full() {
		return e.shortSlow(id, hdr, p)
	}
	c := e.tx.Cell()
	fault.At(fault.Reserve)
	c.SetHeader(hdr)
	fault.At(fault.HalfCopied)
	c.SetPayload(p)
	fault.At(fault.BeforePublish)
	e.tx.Publish(c, uint8(id), len(p))
	fault.At(fault.AfterPublish)
	if !e.tx.PolledAbove(atomic.LoadUint32(e.armed)) {
		e.notify()
	}
	return ucs.OK
}

// AMUint64 sends eight bytes. Its two conditions are no one condition: that took four more instructions.
//
//hot:bench BenchmarkAMShort
//go:nosplit
func (e *ep) AMUint64(id uct.AMID, hdr, v uint64) uct.Status {
	if id >= uct.NumAMIDs {
		return e.uint64Slow(id, hdr, v)
	}
	if !e.tx.Room() && e.tx.Full() {
		return e.uint64Slow(id, hdr, v)
	}
	fault.At(fault.Reserve)
	fault.At(fault.HalfCopied)
	fault.At(fault.BeforePublish)
	e.tx.PutWord(uint8(id), hdr, v)
	fault.At(fault.AfterPublish)
	if !e.tx.PolledAbove(atomic.LoadUint32(e.armed)) {
		e.notify()
	}
	return ucs.OK
}

//go:noinline
func (e *ep) uint64Slow(id uct.AMID, hdr, v uint64) uct.Status {
	if e.tx.Offered() && e.takeTurn() && id < uct.NumAMIDs {
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], v)
		return e.sendMail(id, hdr, b[:])
	}
	if s := e.maySend(id); s != ucs.OK {
		return s
	}
	return e.AMUint64(id, hdr, v)
}

//go:noinline
func (e *ep) shortSlow(id uct.AMID, hdr uint64, p []byte) uct.Status {
	if e.tx.Offered() && e.takeTurn() && len(p) <= ring.MailMax && id < uct.NumAMIDs {
		return e.sendMail(id, hdr, p)
	}
	if s := e.maySend(id); s != ucs.OK {
		return s
	}
	if len(p) <= ring.InlineMax {
		return e.AMShort(id, hdr, p)
	}
	b, s := e.reserve(len(p))
	if s != ucs.OK {
		return s
	}
	if fault.Enabled {
		fault.At(fault.Reserve)
		copy(b, p[:len(p)/2])
		fault.At(fault.HalfCopied)
	}
	copy(b, p)
	e.commit(id, hdr, len(p))
	return ucs.OK
}

// maySend returns OK if a message with this id may be sent now. It refreshes the ring if need be.
func (e *ep) maySend(id uct.AMID) uct.Status {
	if id >= uct.NumAMIDs {
		return ucs.InvalidParam
	}
	if e.status != ucs.OK {
		return e.status
	}
	if e.tx.Room() {
		return ucs.OK
	}
	if s := e.refresh(); s != ucs.OK {
		return s
	}
	if !e.tx.Room() {
		return e.noResource(0)
	}
	return ucs.OK
}

// reserve returns n bytes of the bulk area. The caller has checked may.
func (e *ep) reserve(n int) ([]byte, uct.Status) {
	if n > e.f.attr.AM.Bcopy {
		return nil, ucs.TooLong
	}
	if b, ok := e.tx.Reserve(n); ok {
		return b, ucs.OK
	}
	if s := e.refresh(); s != ucs.OK {
		return nil, s
	}
	if b, ok := e.tx.Reserve(n); ok {
		return b, ucs.OK
	}
	// A message of any length needs room in the bulk area here. With need at most
	// InlineMax, PendingAdd would return Busy and the caller would retry forever.
	return nil, e.noResource(max(n, ring.InlineMax+1))
}

// commit publishes the first n bytes of the reservation, notifies the peer if need be, and prefetches for write the
// lines of a next message of this size. It demotes the lines of a short reply to a single message: the peer of such an
// exchange polls for the reply, and reads it at once.
func (e *ep) commit(id uct.AMID, hdr uint64, n int) {
	consumed := e.rx.Consumed()
	reply := consumed == e.consumedAtCommit+1
	e.consumedAtCommit = consumed
	fault.At(fault.BeforePublish)
	e.tx.Commit(uint8(id), hdr, n, reply && n <= demoteMax)
	fault.At(fault.AfterPublish)
	if !e.tx.PolledAbove(atomic.LoadUint32(e.armed)) {
		e.notify()
	}
	if n <= prefetchMax {
		e.tx.PrefetchWrite(n)
	}
}

// AMZcopy gathers the message into the ring. This is the only copy on the send side.
func (e *ep) AMZcopy(id uct.AMID, hdr uint64, head []byte, v []uct.Vec, _ uct.Token) uct.Status {
	n := len(head)
	for i := range v {
		n += len(v[i].Buf)
	}
	if len(head) > maxHeader || len(v) > maxVec {
		return ucs.InvalidParam
	}
	if s := e.maySend(id); s != ucs.OK {
		return s
	}
	b, s := e.reserve(n)
	if s != ucs.OK {
		return s
	}
	fault.At(fault.Reserve)
	b = b[copy(b, head):]
	fault.At(fault.HalfCopied)
	for i := range v {
		b = b[copy(b, v[i].Buf):]
	}
	e.commit(id, hdr, n)
	return ucs.OK
}

// ReserveAM opens a reservation in the ring.
func (e *ep) ReserveAM(id uct.AMID, hdr uint64, n int) ([]byte, uct.Status) {
	if n < 0 {
		return nil, ucs.InvalidParam
	}
	if s := e.maySend(id); s != ucs.OK {
		return nil, s
	}
	b, s := e.reserve(n)
	if s == ucs.OK {
		fault.At(fault.Reserve)
		e.resID, e.resHdr, e.resLen = id, hdr, n
	}
	return b, s
}

// CommitAM sends the reservation.
func (e *ep) CommitAM(n int) {
	if e.resLen < 0 || n < 0 || n > e.resLen {
		return
	}
	e.resLen = -1
	if e.status == ucs.OK {
		e.commit(e.resID, e.resHdr, n)
	}
}

// Abort discards the reservation.
func (e *ep) Abort() { e.resLen = -1 }
