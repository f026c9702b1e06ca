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
	// was seen to be idle first; the calls are the looks.
	Idle(now ucs.Time, since []ucs.Time) []ucs.Time
	// Sleep proposes at most most of the connections that Idle tells, idle since t or
	// longer, to their peers for sleep, and gives their number. A peer that is about
	// to send declines.
	Sleep(now, t ucs.Time, most int) int
}
