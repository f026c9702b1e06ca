package uct

// FlushKind is the completion level of a flush.
type FlushKind uint8

// Flush kinds.
const (
	// FlushLocal: operations posted before have completed locally; their buffers are free.
	FlushLocal FlushKind = iota
	// FlushRemote: they have also taken effect in the peer's memory. An active message counts when
	// it is in receive memory, not when it is handled.
	FlushRemote
	// FlushCancel: cancel operations that have not been sent; the endpoint fails with Canceled.
	FlushCancel
)

// Vec is one piece of user memory.
type Vec struct {
	// Buf is the piece. The library owns it until the operation's Event. The caller keeps it
	// reachable until then, since the transport may reference it by address only.
	Buf []byte
	// Mem is the registration that covers Buf; nil: none. DomainAttr.NeedMem requires it.
	Mem Mem
}

// Endpoint is a send handle to one remote iface. It is used like its Iface, by one goroutine at a
// time. Every call returns at once. An unsupported
// operation returns Unsupported; Attr lists the supported ones. Operations with a Token return OK
// (no Event follows) or InProgress (one follows). Operations without a Token that return OK no
// longer use the caller's memory. Flush and HandleFailure report whether they arrived.
//
// While an endpoint has pending tokens, its operations outside HandlePending return NoResource.
// This keeps the order.
//
// addr is an address in the owner's memory: the address of the region's first byte there, plus an
// offset. An access outside the region or against its flags returns InvalidParam or RemoteAccess
// if the transport can detect it before sending.
type Endpoint interface {
	// AMShort sends an active message of len(p) ≤ Attr.AM.Short. It copies p before it returns and
	// does not retain it.
	AMShort(id AMID, hdr uint64, p []byte) Status
	// AMUint64 sends v as eight little-endian bytes.
	AMUint64(id AMID, hdr, v uint64) Status
	// AMZcopy sends head followed by the pieces of v. It copies head before it returns. The library
	// owns the pieces until the Event.
	AMZcopy(id AMID, hdr uint64, head []byte, v []Vec, t Token) Status
	// ReserveAM returns n ≤ Attr.AM.Bcopy bytes of transport memory for a message. The caller owns
	// them until CommitAM or Abort. An endpoint has
	// at most one open reservation; CommitAM or Abort ends it before any other call on the
	// endpoint.
	ReserveAM(id AMID, hdr uint64, n int) ([]byte, Status)
	// CommitAM sends the first n bytes of the reservation, n ≤ reserved. It cannot be refused,
	// because ReserveAM took all resources. On a failed endpoint it does nothing.
	CommitAM(n int)
	// Abort releases the reservation.
	Abort()

	// PutShort writes p to addr. It copies p before it returns.
	PutShort(p []byte, addr uint64, k RKey) Status
	// PutUint64 writes eight little-endian bytes, atomically if addr is aligned.
	PutUint64(v, addr uint64, k RKey) Status
	// PutBcopy writes p to addr. It copies p before it returns.
	PutBcopy(p []byte, addr uint64, k RKey, t Token) Status
	// PutZcopy writes the pieces of v to addr, one after the other. The library owns them until the
	// Event.
	PutZcopy(v []Vec, addr uint64, k RKey, t Token) Status

	// GetShort reads len(p) bytes into p before it returns.
	GetShort(p []byte, addr uint64, k RKey) Status
	// GetUint64 reads eight bytes. On InProgress the Event holds the value.
	GetUint64(addr uint64, k RKey, t Token) (uint64, Status)
	// GetBcopy reads len(p) bytes into p. The library owns p until the Event.
	GetBcopy(p []byte, addr uint64, k RKey, t Token) Status
	// GetZcopy reads into the pieces of v, one after the other. The library owns them until the
	// Event.
	GetZcopy(v []Vec, addr uint64, k RKey, t Token) Status

	// Atomic32 and Atomic64 update the word at addr, aligned to its size, without a result.
	Atomic32(op AtomicOp, v uint32, addr uint64, k RKey) Status
	Atomic64(op AtomicOp, v, addr uint64, k RKey) Status
	// Fetch32 and Fetch64 also return the previous value. Only AtomicCompareSwap uses cmp. On
	// InProgress the Event holds the value.
	Fetch32(op AtomicOp, v, cmp uint32, addr uint64, k RKey, t Token) (uint32, Status)
	Fetch64(op AtomicOp, v, cmp, addr uint64, k RKey, t Token) (uint64, Status)

	// PendingAdd queues t until send resources are available; HandlePending then receives it.
	// Busy: resources are available already; retry the operation.
	PendingAdd(t Token) Status
	// PendingPurge empties the queue and passes each token to f, in order.
	PendingPurge(f func(Token))

	// Flush completes when the operations posted before have reached level k. It does not cover
	// pending tokens.
	Flush(k FlushKind, t Token) Status
	// Fence orders the operations before it against those after it.
	Fence() Status
	// Check probes whether the peer is alive. HandleFailure reports a dead peer.
	Check(t Token) Status
	// Close closes the endpoint without waiting. Accepted operations are still sent where the
	// transport can. Tokens in flight complete with Canceled events. Pending tokens must have been
	// purged. It is idempotent.
	Close()
}

// WordPutter is an Endpoint whose memory may be written by a store.
type WordPutter interface {
	// TryPutUint64 is PutUint64 if one store carries it out. Otherwise it returns false and has done
	// nothing: PutUint64 carries it out or returns the reason.
	TryPutUint64(v, addr uint64, k RKey) bool
}
