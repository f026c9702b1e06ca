package verbs

import "github.com/goucx/goucx/ucs"

// QPCaps are the sizes of a queue pair. A provider grants at least what is requested.
type QPCaps struct {
	// MaxSend and MaxRecv are the most outstanding work requests.
	MaxSend, MaxRecv int
	// MaxSendSGE and MaxRecvSGE are the most SGEs of a work request, at most MaxSGE.
	MaxSendSGE, MaxRecvSGE int
	// MaxInline is the longest inline message in bytes.
	MaxInline int
}

// QPConfig configures a queue pair.
type QPConfig struct {
	// Type is RC, UC or UD.
	Type QPType
	// SendCQ and RecvCQ receive the completions. Both are required and may be the same.
	SendCQ, RecvCQ CQ
	// SRQ provides the receives. If nil, the queue pair has its own receive queue.
	SRQ SRQ
	// Caps are the requested sizes; Query returns the granted ones.
	Caps QPCaps
	// SignalAll: every send work request generates a completion, whatever its flags.
	SignalAll bool
	// NoClass, for UD: the program reads no traffic class and hop limit from the GRH
	// area, so a device may leave them 0.
	NoClass bool
}

// QPAttr are a queue pair's attributes. Modify reads the fields in its mask, Query
// fills all.
type QPAttr struct {
	State, CurState  QPState
	EnSQDAsyncNotify bool
	// Access is the set of operations that the peer may execute.
	Access    Access
	PKeyIndex uint16
	Port      uint8
	QKey      uint32
	AV        AHAttr
	PathMTU   MTU
	DestQPN   QPN
	// RQPSN is the first expected PSN, SQPSN the first sent.
	RQPSN, SQPSN PSN
	// Timeout is a code: 4.096 µs · 2^Timeout without a response is a time-out; 0: no
	// time-outs.
	Timeout uint8
	// RetryCnt is the number of retries after time-outs, RNRRetry of retries after RNR
	// NAKs. The next one moves the queue pair to the error state. RNRRetry 7 means no
	// limit.
	RetryCnt, RNRRetry uint8
	// MinRNRTimer is the code of the time that a peer waits after an RNR NAK.
	MinRNRTimer uint8
	// MaxRdAtomic is the most outstanding READs and atomics of this side,
	// MaxDestRdAtomic of the peer.
	MaxRdAtomic, MaxDestRdAtomic uint8
	// PeerFeatures is what a soft device may use with this peer beyond the
	// specification: PeerProbe, PeerGoucx; 0: nothing.
	PeerFeatures uint32
	Caps         QPCaps
}

// PeerProbe: packets that are not acknowledged for longer than a round trip are
// retransmitted before the time-out, without using up a retry. The peer needs no
// support for it. A program that relies on exact retry counts leaves it out.
const PeerProbe = 1 << 0

// PeerGoucx: the peer is a soft device, as its PortAttr.PeerFeatures shows. Any other
// peer is foreign. It may acknowledge only packets with AckReq, send from any UDP port
// with any IPv4 identification, and accept no segment batches.
const PeerGoucx = 1 << 1

// QP is a queue pair.
type QP interface {
	// QPN returns the number by which peers address it.
	QPN() QPN
	// Modify changes state and attributes as the transitions table permits. An error
	// lists what is missing or superfluous; nothing is changed then.
	Modify(a *QPAttr, mask AttrMask) error
	// Query returns the current attributes and state.
	Query() QPAttr
	// PostSend and PostRecv queue wrs in order. They return how many were queued and,
	// if not all were, why the next was not: InvalidParam, or NoResource if the queue
	// is full. Later ones are not looked at.
	//
	//hot:bench BenchmarkPingPong
	PostSend(wrs []SendWR) (int, ucs.Status)
	PostRecv(wrs []RecvWR) (int, ucs.Status)
	// Close destroys the queue pair. After it returns, the queue pair accesses no
	// memory, and its completions have been removed from the CQs. Close is idempotent.
	Close() error
}

// SRQAttr are a shared receive queue's attributes.
type SRQAttr struct {
	// MaxWR is the most receives, MaxSGE the most SGEs of each.
	MaxWR, MaxSGE int
	// Limit: EventSRQLimitReached is raised once, when fewer receives than this are
	// left; 0: not armed.
	Limit int
}

// SRQ is a shared receive queue.
type SRQ interface {
	// PostRecv is as QP.PostRecv.
	PostRecv(wrs []RecvWR) (int, ucs.Status)
	// SetLimit arms the limit event.
	SetLimit(n int) ucs.Status
	// Resize changes MaxWR if DeviceAttr.SRQResize is set. It fails if more receives
	// are queued.
	Resize(n int) error
	Query() SRQAttr
	// Close returns ErrBusy while queue pairs use the queue.
	Close() error
}
