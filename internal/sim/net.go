package sim

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Start is the initial time of every network. It is not zero, so that a zero Time is in the past.
const Start = ucs.Time(time.Second)

// Receiver is called when a datagram arrives. The network reuses b after it returns.
type Receiver = func(from netip.AddrPort, b []byte, now ucs.Time)

// Net is a simulated network. It is used by one goroutine at a time.
type Net struct {
	now    ucs.Time
	seq    uint64 // orders events at the same time
	events queue
	free   [][]byte // buffers of delivered datagrams

	seed       uint64
	rng        *rand.Rand
	nodes      map[netip.AddrPort]Receiver
	groups     map[netip.AddrPort][]member
	base       Link
	links      map[pair]*link
	partitions []partition

	counts Counts
	trace  trace
}

// member is a node in a group.
type member struct {
	at   netip.AddrPort
	recv Receiver
}

// pair is a direction between two nodes.
type pair struct{ from, to netip.AddrPort }

// New returns an empty network whose random choices come from seed. Its links are perfect and take
// no time until SetDefault or SetLink is called.
func New(seed uint64) *Net {
	return &Net{
		now:    Start,
		seed:   seed,
		rng:    rand.New(rand.NewPCG(seed, 0)),
		nodes:  make(map[netip.AddrPort]Receiver),
		groups: make(map[netip.AddrPort][]member),
		links:  make(map[pair]*link),
	}
}

// Now returns the virtual time.
func (n *Net) Now() ucs.Time { return n.now }

// Rand returns a random source for the test's program. The links have their own sources, so its
// use does not affect them.
func (n *Net) Rand() *rand.Rand { return n.rng }

// Attach sets the receiver of an address; it replaces an earlier one.
func (n *Net) Attach(at netip.AddrPort, r Receiver) { n.nodes[at] = r }

// Detach removes the node. Datagrams in flight to it are lost.
func (n *Net) Detach(at netip.AddrPort) { delete(n.nodes, at) }

// Join makes the node at an address receive datagrams to a group with r.
func (n *Net) Join(group, at netip.AddrPort, r Receiver) {
	n.groups[group] = append(n.groups[group], member{at, r})
}

// Leave undoes Join. Datagrams to the group in flight to that node are lost.
func (n *Net) Leave(group, at netip.AddrPort) {
	n.groups[group] = slices.DeleteFunc(n.groups[group], func(m member) bool { return m.at == at })
}

// Send sends a copy of b to a node, or to each node in a group, in the order in which they
// joined. The link to a node determines whether and when its copy arrives.
func (n *Net) Send(from, to netip.AddrPort, b []byte) {
	members := n.groups[to]
	if len(members) == 0 {
		n.counts.Sent++
		n.link(pair{from, to}).send(n, netip.AddrPort{}, b)
		return
	}
	for _, m := range members {
		n.counts.Sent++
		n.link(pair{from, m.at}).send(n, to, b)
	}
}

// Timer is a scheduled function call.
type Timer struct{ fn func(now ucs.Time) }

// Stop cancels the timer; after it has run, Stop does nothing.
func (t *Timer) Stop() { t.fn = nil }

// At calls fn at a time, or in the next Step if the time has passed.
func (n *Net) At(when ucs.Time, fn func(now ucs.Time)) *Timer {
	t := &Timer{fn}
	n.schedule(event{when: when, timer: t})
	return t
}

// Next returns the time of the next event, and whether there is one.
func (n *Net) Next() (ucs.Time, bool) {
	if len(n.events) == 0 {
		return 0, false
	}
	return max(n.events[0].when, n.now), true
}

// Step executes the next event, one arrival or one timer, and advances the time to it. It returns
// false if there is none.
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

// RunUntil executes all events up to time t, sets the time to t, and returns the number of steps.
func (n *Net) RunUntil(t ucs.Time) int {
	steps := 0
	for len(n.events) > 0 && !t.Before(n.events[0].when) {
		n.Step()
		steps++
	}
	n.now = max(n.now, t)
	return steps
}

// Run steps until there are no events. It returns false if limit steps were not enough.
func (n *Net) Run(limit int) bool {
	for range limit {
		if !n.Step() {
			return true
		}
	}
	return len(n.events) == 0
}

// arrive passes a datagram to its node.
func (n *Net) arrive(e *event) {
	r := n.nodes[e.to]
	if e.group.IsValid() {
		r = n.receiver(e.group, e.to)
	}
	switch {
	case n.isPartitioned(e.pair):
		n.lose(Partitioned, e.pair, e.b)
	case r == nil:
		n.lose(NoNode, e.pair, e.b)
	default:
		n.counts.Delivered++
		n.trace.add(n.now, Delivered, e.pair, e.b)
		r(e.from, e.b, n.now)
	}
}

// receiver returns the receiver of a node in a group, or nil.
func (n *Net) receiver(group, at netip.AddrPort) Receiver {
	for _, m := range n.groups[group] {
		if m.at == at {
			return m.recv
		}
	}
	return nil
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

// copyOf copies b into the buffer of a delivered datagram.
func (n *Net) copyOf(b []byte) []byte {
	var buf []byte
	if last := len(n.free) - 1; last >= 0 {
		buf, n.free = n.free[last][:0], n.free[:last]
	}
	return append(buf, b...)
}
