package sim

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Start is the time at which every network begins: not zero, so that a zero Time
// lies in the past.
const Start = ucs.Time(time.Second)

// Receiver gets a datagram when it arrives. The bytes are the network's again
// when it returns.
type Receiver = func(from netip.AddrPort, b []byte, now ucs.Time)

// Net is a simulated network. One goroutine at a time uses it.
type Net struct {
	now    ucs.Time
	seq    uint64 // orders events of the same time
	events queue
	free   [][]byte // buffers of datagrams that have arrived

	seed  uint64
	rng   *rand.Rand
	nodes map[netip.AddrPort]Receiver
	base  Link
	links map[pair]*link
	cuts  []cut

	counts Counts
	trace  trace
}

// pair is a direction between two nodes.
type pair struct{ from, to netip.AddrPort }

// New makes an empty network whose chances come from seed. Its links are
// perfect and take no time until SetDefault or SetLink say otherwise.
func New(seed uint64) *Net {
	return &Net{
		now:   Start,
		seed:  seed,
		rng:   rand.New(rand.NewPCG(seed, 0)),
		nodes: make(map[netip.AddrPort]Receiver),
		links: make(map[pair]*link),
	}
}

// Now is the virtual time.
func (n *Net) Now() ucs.Time { return n.now }

// Rand is a source of chances for the program of a test. The links draw from
// sources of their own, so that it does not change what they do.
func (n *Net) Rand() *rand.Rand { return n.rng }

// Attach gives what arrives at an address to r, in place of an earlier receiver.
func (n *Net) Attach(at netip.AddrPort, r Receiver) { n.nodes[at] = r }

// Detach takes the node away. What is on its way to it will be lost.
func (n *Net) Detach(at netip.AddrPort) { delete(n.nodes, at) }

// Send sends a copy of b. Whether and when it arrives is the link's affair.
func (n *Net) Send(from, to netip.AddrPort, b []byte) {
	n.counts.Sent++
	n.link(pair{from, to}).send(n, b)
}

// Timer is something that will be done at a time.
type Timer struct{ fn func(now ucs.Time) }

// Stop withdraws the timer; after it has run, that does nothing.
func (t *Timer) Stop() { t.fn = nil }

// At has fn called at a time, or at once in the next Step where it has passed.
func (n *Net) At(when ucs.Time, fn func(now ucs.Time)) *Timer {
	t := &Timer{fn}
	n.schedule(event{when: when, timer: t})
	return t
}

// Next is the time of the next event, and whether there is one.
func (n *Net) Next() (ucs.Time, bool) {
	if len(n.events) == 0 {
		return 0, false
	}
	return max(n.events[0].when, n.now), true
}

// Step carries out the next event and moves the time to it: one arrival or one
// timer. It reports false where there was none.
func (n *Net) Step() bool {
	if len(n.events) == 0 {
		return false
	}
	e := n.events.pop()
	n.now = max(n.now, e.when)
	if e.timer != nil {
		if fn := e.timer.fn; fn != nil {
			e.timer.fn = nil
			fn(n.now)
		}
		return true
	}
	n.arrive(&e)
	n.free = append(n.free, e.b)
	return true
}

// RunUntil carries out everything up to the time t, which it then is, and gives
// the number of steps.
func (n *Net) RunUntil(t ucs.Time) int {
	steps := 0
	for len(n.events) > 0 && !t.Before(n.events[0].when) {
		n.Step()
		steps++
	}
	n.now = max(n.now, t)
	return steps
}

// Run steps until nothing is left to do. It reports false where limit steps did
// not suffice.
func (n *Net) Run(limit int) bool {
	for range limit {
		if !n.Step() {
			return true
		}
	}
	return len(n.events) == 0
}

// arrive hands a datagram to its node.
func (n *Net) arrive(e *event) {
	r := n.nodes[e.to]
	switch {
	case n.isCut(e.pair):
		n.lose(Cut, e.pair, e.b)
	case r == nil:
		n.lose(NoNode, e.pair, e.b)
	default:
		n.counts.Delivered++
		n.trace.add(n.now, Delivered, e.pair, e.b)
		r(e.from, e.b, n.now)
	}
}

func (n *Net) lose(why Fate, p pair, b []byte) {
	n.counts.count(why)
	n.trace.add(n.now, why, p, b)
}

func (n *Net) schedule(e event) {
	n.seq++
	e.seq = n.seq
	n.events.push(e)
}

// copyOf copies b into a buffer that a datagram left behind.
func (n *Net) copyOf(b []byte) []byte {
	var buf []byte
	if last := len(n.free) - 1; last >= 0 {
		buf, n.free = n.free[last][:0], n.free[:last]
	}
	return append(buf, b...)
}
