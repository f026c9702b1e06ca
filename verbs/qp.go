package verbs

import "github.com/goucx/goucx/ucs"

// QPCaps are the sizes of a queue pair. A provider gives at least what is asked
// for.
type QPCaps struct {
	// MaxSend and MaxRecv are outstanding work requests.
	MaxSend, MaxRecv int
	// MaxSendSGE and MaxRecvSGE are pieces of one, at most MaxSGE.
	MaxSendSGE, MaxRecvSGE int
	// MaxInline is the longest inline message in bytes.
	MaxInline int
}

// QPConfig is what a queue pair is made with.
type QPConfig struct {
	// Type is RC or UD.
	Type QPType
	// SendCQ and RecvCQ get the completions; required, may be the same.
	SendCQ, RecvCQ CQ
	// SRQ gives the receives; nil: the queue pair has its own.
	SRQ SRQ
	// Caps are the sizes asked for; Query tells those given.
	Caps QPCaps
	// SignalAll has every send work request complete, whatever its flags.
	SignalAll bool
	// NoClass, of UD: the program reads no traffic class and no hop limit in front of
	// what it receives, and a device may leave them 0.
	NoClass bool
}

// QPAttr are a queue pair's attributes. Modify reads the fields that its mask
// names, Query fills them all.
type QPAttr struct {
	State, CurState  QPState
	EnSQDAsyncNotify bool
	// Access is what peers may do.
	Access    Access
	PKeyIndex uint16
	Port      uint8
	QKey      uint32
	AV        AHAttr
	PathMTU   MTU
	DestQPN   QPN
	// RQPSN is the first sequence number expected, SQPSN the first sent.
	RQPSN, SQPSN PSN
	// Timeout: 4.096 µs · 2^Timeout without an answer is a time-out; 0: never.
	Timeout uint8
	// RetryCnt time-outs and RNRRetry waits for a receiver fail the queue pair;
	// RNRRetry 7: never.
	RetryCnt, RNRRetry uint8
	// MinRNRTimer is the code of how long a peer shall wait for a receive.
	MinRNRTimer uint8
	// MaxRdAtomic reads and atomics are outstanding at most; MaxDestRdAtomic of
	// the peer's.
	MaxRdAtomic, MaxDestRdAtomic uint8
	// PeerFeatures are what a soft device may use beyond the specification towards
	// this peer: PeerProbe, PeerGoucx; 0: nothing.
	PeerFeatures uint32
	Caps         QPCaps
}

// PeerProbe: what is not acknowledged for longer than a round trip takes goes again
// before the time-out, without using up a retry. It needs nothing of the peer; who
// counts on exact retries does without.
const PeerProbe = 1 << 0

// PeerGoucx: the peer is a soft device, by its PortAttr.PeerFeatures. Any other
// peer is foreign: it may acknowledge only what asks for it, send from any UDP port
// with any IPv4 identification, and take no segment batches.
const PeerGoucx = 1 << 1

// QP is a queue pair.
type QP interface {
	// QPN is its number, by which peers address it.
	QPN() QPN
	// Modify changes state and attributes by the transitions table; an error
	// names what is missing or too much, and nothing changed.
	Modify(a *QPAttr, mask AttrMask) error
	// Query gives attributes and state as they are.
	Query() QPAttr
	// PostSend and PostRecv queue wrs in order. They give how many were queued and,
	// where that is not all, why the next was not: InvalidParam, or NoResource
	// where the queue is full. The rest is untouched.
	//
	// hot: BenchmarkPostSend.
	PostSend(wrs []SendWR) (int, ucs.Status)
	PostRecv(wrs []RecvWR) (int, ucs.Status)
	// Close destroys the queue pair: nothing of it touches memory after the return,
	// and its completions are taken out of the CQs. Idempotent.
	Close() error
}

// SRQAttr are a shared receive queue's attributes.
type SRQAttr struct {
	// MaxWR receives and MaxSGE pieces of each.
	MaxWR, MaxSGE int
	// Limit: EventSRQLimitReached comes once when fewer receives than this are
	// left; 0: not armed.
	Limit int
}

// SRQ is a shared receive queue.
type SRQ interface {
	// PostRecv is as QP.PostRecv.
	PostRecv(wrs []RecvWR) (int, ucs.Status)
	// SetLimit arms the limit event.
	SetLimit(n int) ucs.Status
	// Resize changes MaxWR, where DeviceAttr.SRQResize; never below what is queued.
	Resize(n int) error
	Query() SRQAttr
	// Close refuses with ErrBusy while queue pairs use it.
	Close() error
}
