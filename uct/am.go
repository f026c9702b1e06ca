package uct

// AMID selects what an active message means to the layer above: 0 to
// NumAMIDs-1, so that a transport may pack it into five bits.
type AMID uint8

// NumAMIDs is the number of active-message ids.
const NumAMIDs = 32

// MaxBatch is the most descriptors handed to one HandleAM call.
const MaxBatch = 64

// DescFlags tell what may be done with a received message's memory.
type DescFlags uint8

// DescCanKeep: the memory may outlive HandleAM until it is given back with
// Iface.Release. Without it the receiver must copy (a ring cell).
const DescCanKeep DescFlags = 1 << 0

// Desc describes one received active message. It holds no pointer, so a batch
// of them costs no write barrier; the payload is mem[Off:Off+Len] of the memory
// handed over with the batch, valid until HandleAM returns or, where kept,
// until Release(Handle).
type Desc struct {
	Off, Len uint32
	// Header is the sender's 8-byte header; it travels beside the descriptor,
	// not with the payload.
	Header uint64
	// Handle names the memory in Iface.Release; meaningful with DescCanKeep.
	Handle uint64
	// Source numbers the connection that the message came by, within its iface;
	// never 0 on an ordered transport. A number is used again only after the
	// Failure or the end of its connection was reported.
	Source uint32
	ID     AMID
	Flags  DescFlags
}

// Failure reports the end of a connection: the peer died, hung up, or broke
// the protocol.
type Failure struct {
	// Endpoint is the failed endpoint, nil where the connection was accepted
	// and never used for sending, and where the peer closed its side in order
	// while this one may still send.
	Endpoint Endpoint
	// Source is the Desc.Source of the connection's messages; 0 where it has
	// received none, or their end was reported before.
	Source uint32
	// Err is the reason; it wraps one of the sentinels of package ucs. nil: the
	// peer closed in order.
	Err error
	// Unused: no operation posted on Endpoint has been carried out, and no message of
	// the connection came. Where Err is another than ucs.ErrPeerFailed, the connection
	// could not be made, for want of room here or there, and what waits on Endpoint may
	// go by another one; until this report Endpoint has answered ucs.NoResource.
	Unused bool
}

// Handler receives an iface's callbacks, all from within Progress.
type Handler interface {
	// HandleEvents reports ended operations. es is the iface's own and valid
	// during the call.
	HandleEvents(es []Event)
	// HandleAM delivers a batch of at most MaxBatch messages in the order of
	// arrival per source. The result has bit i set where ds[i] is kept; only
	// those with DescCanKeep may be.
	HandleAM(mem []byte, ds []Desc) (kept uint64)
	// HandlePending offers the tokens that wait on one endpoint, oldest first,
	// when resources came back. It retries their operations and returns how many
	// of the first it consumed; the rest keep their place. It may be called with
	// fewer than all.
	HandlePending(ts []Token) int
	// HandleFailure reports a failed connection, once. The endpoint's accepted
	// operations have ended before it with HandleEvents, and each event with PeerFailed
	// is followed by it, unless the endpoint is closed first; its pending tokens are
	// still there for PendingPurge. The endpoint answers PeerFailed from now on
	// and must still be closed.
	HandleFailure(f Failure)
}
