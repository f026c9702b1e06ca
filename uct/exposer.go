package uct

// Exposer is an Endpoint that can let its peer fetch a long message from memory of this process, with a
// single copy and without a registration.
//
// The owner of the memory exposes it under a number of its choice, and sends the number to the peer on the
// same connection. The peer passes the number to Fetcher.Fetch. The memory stays the owner's until the
// exposure ends: by Fetched, after the peer has reported that its Fetch has completed, or by Withdraw.
type Exposer interface {
	// Expose exposes buf as number id, which must differ from those of the endpoint's other exposures and
	// is not reused soon. m is the registration that covers buf; nil: none. The caller keeps buf reachable
	// and in place until Withdraw. It allocates nothing, except at the first exposures of a connection.
	//
	// NoResource: too many exposures, or the peer is not connected yet. Unsupported: the peer cannot fetch.
	// In both cases the caller sends the data in messages.
	Expose(id uint64, buf []byte, m Mem) Status
	// FetchesNow reports whether the peer is known to be able to fetch any memory of this process with
	// Fetcher.FetchNow. It may send the peer what it needs to find out; later calls have the result.
	FetchesNow() bool
	// Withdraw ends exposure id. OK: no Fetch of it has completed, and none will. Busy: a Fetch has
	// completed. Either way the peer does not access the memory for a later Fetch. A copy that is under
	// way may still read it, and its Fetch fails. Another id is ignored.
	Withdraw(id uint64) Status
	// Fetched ends exposure id, of which the peer has reported a completed Fetch. Another id is ignored.
	Fetched(id uint64)
}

// Fetcher is an Iface whose peers' endpoints are Exposers.
type Fetcher interface {
	// Fetch copies the first len(dst) bytes of the memory of n bytes that the sender of connection rxConn
	// exposed as number id to dst. m is the registration that covers dst; nil: none. The library owns dst
	// until the Event of t.
	//
	// OK or InProgress: as for other operations with a Token. The statuses of a failure are those of the
	// result or of the Event:
	//   - Unsupported: there is no such exposure, or this process may not access the peer's memory. The
	//     caller requests the data in messages.
	//   - Canceled: the exposure was withdrawn, or the connection has ended. The peer's notification or
	//     HandleFailure tells which.
	//   - RemoteAccess: the memory, or dst, is not accessible any more. The contents of dst are undefined.
	//   - BufferExposed: the fetch was canceled or has failed, and the peer, which is stopped, may still write to dst.
	Fetch(rxConn uint32, id, n uint64, dst []byte, m Mem, t Token) Status
	// Expect is a hint that a Fetch of exposure id follows within some 100 ns. Any arguments are permitted.
	Expect(rxConn uint32, id uint64)
	// FetchNow is a Fetch that has ended when it returns, without an Event: for memory of some 10 KB, which this
	// process copies by itself. It returns neither InProgress nor BufferExposed, and does not wait for the peer.
	// PeerFailed: the connection has ended. Canceled: the exposure was withdrawn.
	FetchNow(rxConn uint32, id, n uint64, dst []byte) Status
	// CancelFetch ends the fetch with token t. OK: it has ended, without an Event, and the library does not
	// own its buffer any more. Busy: the peer may write to the buffer for some time. The Event follows, within
	// the time that the close of registered memory waits for peers. With wait, CancelFetch waits so long
	// itself; Busy then means what BufferExposed does, and no Event follows.
	CancelFetch(t Token, wait bool) Status
}
