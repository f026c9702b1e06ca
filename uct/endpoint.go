package uct

// FlushKind says what a flush waits for.
type FlushKind uint8

// Flush kinds.
const (
	// FlushLocal: operations posted before have ended here; buffers are free.
	FlushLocal FlushKind = iota
	// FlushRemote: and have taken effect in the peer's memory. An active
	// message counts as accepted into receive memory, never as handled.
	FlushRemote
	// FlushCancel: give up what has not been sent; the endpoint fails with
	// Canceled.
	FlushCancel
)

// Vec is one piece of user memory. The caller's slab holds Buf until the
// operation's Event; Mem, where set, is the registration that covers it.
type Vec struct {
	Buf []byte
	Mem Mem
}

// Endpoint is a send handle to one remote iface. Every call answers at once; an
// operation without support answers Unsupported, and Attr says so before.
// Operations with a Token answer OK (no Event comes) or InProgress (one comes).
// Those without one that answer OK are done as far as the caller's memory goes;
// whether they arrived is what Flush and HandleFailure tell.
//
// While an endpoint has pending tokens its operations outside HandlePending
// answer NoResource, so that order holds.
//
// addr is an address in the owner's memory: the region's first byte there, plus
// an offset. An access beyond the region or against its flags answers
// InvalidParam or RemoteAccess where the transport can tell before sending.
type Endpoint interface {
	// AMShort sends an active message of len(p) ≤ Attr.AM.Short; p is copied
	// before it returns, and not retained.
	AMShort(id AMID, hdr uint64, p []byte) Status
	// AMUint64 sends v as eight little-endian bytes.
	AMUint64(id AMID, hdr, v uint64) Status
	// AMZcopy sends head, copied before it returns, followed by the pieces of v.
	AMZcopy(id AMID, hdr uint64, head []byte, v []Vec, t Token) Status
	// ReserveAM gives n ≤ Attr.AM.Bcopy bytes of transport memory to write a
	// message into. At most one reservation is open per endpoint; CommitAM or
	// Abort ends it before any other call on the endpoint.
	ReserveAM(id AMID, hdr uint64, n int) ([]byte, Status)
	// CommitAM sends the first n bytes of the reservation, n ≤ reserved. It
	// cannot be refused, since Reserve took all that it needs; on a failed
	// endpoint it does nothing.
	CommitAM(n int)
	// Abort gives the reservation back.
	Abort()

	// PutShort writes p to addr; p is copied before it returns.
	PutShort(p []byte, addr uint64, k RKey) Status
	// PutUint64 writes eight bytes, little-endian, atomically where addr is aligned.
	PutUint64(v, addr uint64, k RKey) Status
	PutBcopy(p []byte, addr uint64, k RKey, t Token) Status
	PutZcopy(v []Vec, addr uint64, k RKey, t Token) Status

	// GetShort reads len(p) bytes into p before it returns.
	GetShort(p []byte, addr uint64, k RKey) Status
	// GetUint64 reads eight bytes; on InProgress the value comes in the Event.
	GetUint64(addr uint64, k RKey, t Token) (uint64, Status)
	GetBcopy(p []byte, addr uint64, k RKey, t Token) Status
	GetZcopy(v []Vec, addr uint64, k RKey, t Token) Status

	// Atomic32 and Atomic64 update the word at addr, aligned to its size,
	// without a result.
	Atomic32(op AtomicOp, v uint32, addr uint64, k RKey) Status
	Atomic64(op AtomicOp, v, addr uint64, k RKey) Status
	// Fetch32 and Fetch64 also give the previous value; cmp is used by
	// AtomicCompareSwap alone. On InProgress the value comes in the Event.
	Fetch32(op AtomicOp, v, cmp uint32, addr uint64, k RKey, t Token) (uint32, Status)
	Fetch64(op AtomicOp, v, cmp, addr uint64, k RKey, t Token) (uint64, Status)

	// PendingAdd queues t until send resources are back, when HandlePending
	// gets it. Busy: they are back already; retry the operation.
	PendingAdd(t Token) Status
	// PendingPurge empties the queue, handing each token to f in order.
	PendingPurge(f func(Token))

	// Flush ends when what was posted before has ended in the sense of k.
	// Pending tokens are not covered.
	Flush(k FlushKind, t Token) Status
	// Fence orders operations before it against those after it.
	Fence() Status
	// Check asks whether the peer lives; a dead one is reported by HandleFailure.
	Check(t Token) Status
	// Close ends the endpoint without waiting; what was accepted still goes out
	// where the transport can. Its tokens in flight end with Canceled events.
	// Pending tokens must have been purged. Idempotent.
	Close()
}
