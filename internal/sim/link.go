package sim

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Link describes a link from one node to another. The zero Link is perfect and takes no time.
// Probabilities are between 0 and 1, drawn for each datagram.
type Link struct {
	// Latency of every datagram, in addition to its transmission time.
	Latency time.Duration
	// Bandwidth in bytes per second; 0: unlimited.
	Bandwidth float64
	// Overhead is added to each datagram's length on the wire, in bytes.
	Overhead int
	// Queue is the maximum number of bytes that wait for transmission; further datagrams are lost.
	// 0: unlimited.
	Queue int
	// MTU is the maximum length of a datagram in bytes; longer ones are lost. 0: unlimited.
	MTU int

	// Loss is the probability of loss, Duplicate that of duplication.
	Loss, Duplicate float64
	// Reorder is the probability of a delay of up to Jitter, which lets later datagrams overtake.
	// The others keep their order.
	Reorder float64
	// Jitter is the maximum of that delay.
	Jitter time.Duration
	// Corrupt is the probability that one to three bits flip.
	Corrupt float64
	// Stall is the probability that the link stalls for up to StallFor from this datagram on.
	// After that everything arrives at once, in order.
	Stall float64
	// StallFor is the maximum duration of a stall.
	StallFor time.Duration
}

// link is the state of one direction. It has its own random source and draws the same number of
// values for each datagram. So the fate of the n-th datagram of a link depends on the seed alone,
// not on other links or on other faults.
type link struct {
	Link
	pair
	explicit bool // set by SetLink
	rng      *rand.Rand
	idle     ucs.Time // when the wire has transmitted everything queued
	stalled  ucs.Time // nothing arrives before this time
}

// randomValues holds the random values for one datagram.
type randomValues struct {
	lost, twice, late, corrupt, stall float64
	delay, delay2, stallFor           float64
	bits                              uint64
}

// SetDefault sets the link of all directions without a link set by SetLink.
func (n *Net) SetDefault(l Link) {
	n.base = l
	for _, s := range n.links {
		if !s.explicit {
			s.Link = l
		}
	}
}

// SetLink sets the link from one node to another; the reverse direction is separate. Datagrams in
// flight keep their time of arrival.
func (n *Net) SetLink(from, to netip.AddrPort, l Link) {
	s := n.link(pair{from, to})
	s.Link, s.explicit = l, true
}

func (n *Net) link(p pair) *link {
	if s := n.links[p]; s != nil {
		return s
	}
	s := &link{Link: n.base, pair: p, rng: rand.New(rand.NewPCG(n.seed, p.hash()))}
	n.links[p] = s
	return s
}

// hash distinguishes the random sources of directions. It is never 0, which is the Net's.
func (p pair) hash() uint64 {
	h := fnv.New64a()
	for _, a := range [2]netip.AddrPort{p.from, p.to} {
		ip := a.Addr().As16()
		h.Write(binary.BigEndian.AppendUint16(ip[:], a.Port()))
	}
	return h.Sum64() | 1
}

// send sends a copy of b, for the group if that is valid.
func (l *link) send(n *Net, group netip.AddrPort, b []byte) {
	d := l.draw()
	n.trace.add(n.now, Sent, l.pair, b)
	switch {
	case n.isPartitioned(l.pair):
		n.lose(Partitioned, l.pair, b)
		return
	case l.MTU > 0 && len(b) > l.MTU:
		n.lose(TooLong, l.pair, b)
		return
	case d.lost < l.Loss:
		n.lose(Lost, l.pair, b)
		return
	}
	sent, ok := l.transmit(n.now, len(b)+l.Overhead)
	if !ok {
		n.lose(QueueFull, l.pair, b)
		return
	}
	when := l.arrival(sent, &d)
	if when > sent.Add(l.Latency) {
		n.counts.Delayed++
	}
	first := n.copyOf(b)
	if d.corrupt < l.Corrupt && len(b) > 0 {
		n.counts.Corrupted++
		flip(first, d.bits)
		n.trace.add(n.now, Corrupted, l.pair, first)
	}
	n.schedule(event{when: when, pair: l.pair, group: group, b: first})
	if d.twice < l.Duplicate {
		n.counts.Duplicated++
		n.schedule(event{when: when.Add(scale(l.Jitter, d.delay2)), pair: l.pair, group: group, b: n.copyOf(b)})
	}
}

func (l *link) draw() randomValues {
	f := l.rng.Float64
	return randomValues{f(), f(), f(), f(), f(), f(), f(), f(), l.rng.Uint64()}
}

// transmit puts size bytes on the wire. It returns when the last of them is transmitted, or false
// if the queue is full.
func (l *link) transmit(now ucs.Time, size int) (ucs.Time, bool) {
	if l.Bandwidth <= 0 {
		return now, true
	}
	start := max(l.idle, now)
	if waiting := start.Sub(now).Seconds() * l.Bandwidth; l.Queue > 0 && waiting+float64(size) > float64(l.Queue) {
		return 0, false
	}
	l.idle = start.Add(time.Duration(float64(size) / l.Bandwidth * float64(time.Second)))
	return l.idle, true
}

// arrival returns the time of arrival of a transmitted datagram.
func (l *link) arrival(sent ucs.Time, d *randomValues) ucs.Time {
	when := sent.Add(l.Latency)
	if d.stall < l.Stall {
		l.stalled = max(l.stalled, when.Add(scale(l.StallFor, d.stallFor)))
	}
	when = max(when, l.stalled)
	if d.late < l.Reorder {
		when = when.Add(scale(l.Jitter, d.delay))
	}
	return when
}

// scale returns a fraction of a duration.
func scale(d time.Duration, part float64) time.Duration { return time.Duration(part * float64(d)) }

// flip flips one to three different bits, chosen by r. A 32-bit checksum detects that many.
func flip(b []byte, r uint64) {
	bits := uint64(8 * len(b))
	first, step := r>>2%bits, 1+r>>32%(bits/3)
	for i := range 1 + r&3%3 {
		bit := (first + i*step) % bits
		b[bit/8] ^= 1 << (bit % 8)
	}
}
