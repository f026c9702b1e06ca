package uct

// AMID selects the handler of an active message in the layer above: 0 to NumAMIDs-1, so that a
// transport may encode it in five bits.
type AMID uint8

// NumAMIDs is the number of active-message IDs.
const NumAMIDs = 32

// MaxBatch is the maximum number of descriptors in one HandleAM call.
const MaxBatch = 64

// DescFlags holds the properties of a received message's memory.
type DescFlags uint8

// DescCanRetain: the receiver may retain the memory after HandleAM until it calls Iface.Release.
// Without it the receiver must copy the payload (a ring cell).
const DescCanRetain DescFlags = 1 << 0

// Desc describes one received active message. It holds no pointer, so a batch of them costs no
// write barrier. The payload is mem[Off:Off+Len] of the memory passed with the batch. It is valid
// until HandleAM returns or, if retained, until Release(Handle).
type Desc struct {
	Off, Len uint32
	// Header is the sender's 8-byte header. It is passed in the descriptor, not in the payload.
	Header uint64
	// Handle identifies the memory in Iface.Release. It is valid with DescCanRetain.
	Handle uint64
	// RxConn numbers the connection that delivered the message, within its iface. It is never 0 on
	// an ordered transport. A number is reused only after the Failure or the end of its connection
	// was reported.
	RxConn uint32
	ID     AMID
	Flags  DescFlags
}

// Failure reports the end of a connection: the peer died, disconnected, or violated the protocol.
type Failure struct {
	// Endpoint is the failed endpoint. It is nil if the connection was accepted and never used for
	// sending. It is also nil if the peer closed its side in order while this side may still send.
	Endpoint Endpoint
	// RxConn is the Desc.RxConn of the connection's messages. It is 0 if the connection has
	// received none, or if their end was reported before.
	RxConn uint32
	// Err is the reason; it wraps one of the sentinels of package ucs. nil: the peer closed in
	// order.
	Err error
	// NeverConnected: no operation posted on Endpoint was executed, and no message of the connection
	// arrived. If Err is not ucs.ErrPeerFailed, either side lacked the resources to establish the
	// connection, and the operations waiting on Endpoint may use another one. Until this report
	// Endpoint has returned ucs.NoResource.
	NeverConnected bool
	// Acked, with a nil Err: the peer had acknowledged every operation that Endpoint accepted, before
	// it closed. Pending tokens are not accepted.
	Acked bool
}

// Handler receives an iface's callbacks. Progress makes all of them.
type Handler interface {
	// HandleEvents reports completed operations. The iface owns es, which is valid during the
	// call.
	HandleEvents(es []Event)
	// HandleAM delivers a batch of at most MaxBatch messages in the order of arrival per source.
	// The result has bit i set if the handler retains ds[i], which requires DescCanRetain.
	HandleAM(mem []byte, ds []Desc) (kept uint64)
	// HandlePending passes the pending tokens of one endpoint, oldest first, when send resources
	// are available again. It retries their operations and returns how many tokens from the front
	// it consumed; the others keep their place. ts may hold fewer than all pending tokens.
	HandlePending(ts []Token) int
	// HandleFailure reports a failed connection, once. The endpoint's accepted operations have
	// completed before it with HandleEvents. It follows each event with PeerFailed, unless the
	// endpoint is closed first. The endpoint's pending tokens remain for PendingPurge. The
	// endpoint returns PeerFailed from now on, and the caller must still close it.
	HandleFailure(f Failure)
}
