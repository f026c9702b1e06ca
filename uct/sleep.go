package uct

import "github.com/goucx/goucx/ucs"

// Idler is an Iface whose connections can sleep: give up what they hold, rings or a
// queue pair, until their next use. Its user bounds with it how many of them, over
// all ifaces, are live. The methods are called as those of Iface, outside of
// callbacks.
type Idler interface {
	// Live is how many connections hold something.
	Live() int
	// Idle appends to since, for each connection that could be put to sleep, when it
	// was seen to be idle first; the calls are the looks. One for which the user waits
	// for an answer is not idle.
	Idle(now ucs.Time, since []ucs.Time) []ucs.Time
	// Sleep proposes at most most of the connections that Idle tells, idle since t or
	// longer, to their peers for sleep, and gives their number. A peer that is about
	// to send declines.
	Sleep(now, t ucs.Time, most int) int
}

// Waits is what the user of a connection waits for.
type Waits uint8

// What is waited for; each includes those before it.
const (
	// WaitsNot: for nothing.
	WaitsNot Waits = iota
	// WaitsForEnd: for something that the peer need never send, and that ends with the
	// connection. Asleep, the connection is probed as often as a live one.
	WaitsForEnd
	// WaitsForAnswer: the user awaits an answer of the peer, or owes it one. The
	// connection is not put to sleep from this side.
	WaitsForAnswer
)

// WaitReporter is a Handler that knows for which connections it waits. An Idler calls
// it from Progress, Idle and Sleep.
type WaitReporter interface {
	// ReportWaits calls report for each connection for which the user waits for at
	// least least. A connection is named by its endpoint or by its Desc.Source; the
	// other is nil or 0. It may be reported more than once.
	ReportWaits(least Waits, report func(ep Endpoint, source uint32, w Waits))
}
