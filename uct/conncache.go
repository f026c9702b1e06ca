package uct

import "github.com/goucx/goucx/ucs"

// ConnectionCache is an Iface that can suspend connections: a suspended connection releases its
// resources, rings or a queue pair, until its next use. The user of the Iface bounds with it the
// number of active connections over all ifaces. Its methods are called like those of Iface,
// outside of callbacks.
type ConnectionCache interface {
	// Active returns the number of connections that hold resources.
	Active() int
	// Candidates appends to since one time for each connection that could be suspended: when it was
	// first seen idle. The calls of Candidates do that check. A connection on which the user waits
	// for a reply is not idle.
	Candidates(now ucs.Time, since []ucs.Time) []ucs.Time
	// Evict proposes suspension to the peers of at most most connections that Candidates returns and
	// that are idle since t or longer. It returns their number. A peer that is about to send
	// declines.
	Evict(now, t ucs.Time, most int) int
}

// WaitKind is what the user of a connection waits for.
type WaitKind uint8

// Values of WaitKind; each includes those before it.
const (
	// WaitNone: nothing.
	WaitNone WaitKind = iota
	// WaitForClose: something that the peer need never send, and that ends with the connection. A
	// suspended connection is then probed as often as an active one.
	WaitForClose
	// WaitForReply: a reply of the peer, or the local side has to send one. The connection is
	// not suspended from this side.
	WaitForReply
)

// WaitReporter is a Handler that can report on which connections its user waits. A ConnectionCache
// calls it from Progress, Candidates and Evict.
type WaitReporter interface {
	// ReportWaits calls report for each connection on which the user waits for at least least. A
	// connection is identified by its endpoint or by its Desc.RxConn; the other is nil or 0. It
	// may be reported more than once.
	ReportWaits(least WaitKind, report func(ep Endpoint, rxConn uint32, w WaitKind))
}
