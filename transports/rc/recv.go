package rc

import (
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// odd acts on a completion of the receive queue that is no message of a connection
// at rest.
//
//go:noinline
func (f *iface) odd(p *pair, wc *verbs.WC) {
	buf := uint32(wc.ID)
	f.posted--
	switch {
	case p == nil || wc.Status != verbs.WCSuccess || p.retired != 0:
		f.rx.Give(buf) // flushed, or too late
	case wc.Len < headLen:
		f.rx.Give(buf)
		f.stats.Inc(statGarbage)
		f.failLater(p.e, failErr("it sent a message without a head"))
	default:
		p.early = append(p.early, *wc)
		f.lateOf(p)
		if p.e.m.Awaits() == p.id {
			p.e.step(machine.Event{Kind: machine.Arrived, Pair: p.id})
		}
	}
}

// lateOf has the next pass deliver what waits in a pair that is read.
func (f *iface) lateOf(p *pair) {
	if p.reads {
		f.late = append(f.late, p)
		f.attention = true
	}
}

// deliverLate hands over what came in pairs before they were read.
func (f *iface) deliverLate() (n int) {
	for len(f.late) > 0 {
		p := f.late[0]
		f.late = f.late[1:]
		if p.closed || len(p.early) == 0 {
			continue
		}
		es := p.early
		p.early = nil
		p.settle()
		f.posted += len(es) // arrived counts them again
		for len(es) > 0 && !p.closed {
			k := min(len(es), len(f.recvs))
			if !p.plain { // a marker was among them
				p.early = append(p.early, es...)
				f.posted -= len(es)
				break
			}
			n += f.arrived(es[:k])
			es = es[k:]
		}
	}
	return n
}

// settle notes whether a message in the pair needs nothing but to be delivered.
func (p *pair) settle() {
	p.plain = p.reads && len(p.early) == 0 && p.e.m.Awaits() != p.id && p.retired == 0
}

// stashAll takes what stands in the receive queue.
func (f *iface) stashAll() {
	var wcs [16]verbs.WC
	for {
		k := f.recvCQ.Poll(wcs[:])
		if k <= 0 {
			return
		}
		f.stash = append(f.stash, wcs[:k]...)
	}
}

// unstash takes from the stash.
func (f *iface) unstash(wcs []verbs.WC) int {
	k := copy(wcs, f.stash[f.stashAt:])
	f.stashAt += k
	if f.stashAt == len(f.stash) {
		f.stash, f.stashAt = f.stash[:0], 0
	}
	return k
}

// drainStash hands over all that was stashed.
func (f *iface) drainStash() (n int) {
	for f.stashAt < len(f.stash) {
		n += f.arrived(f.recvs[:f.unstash(f.recvs[:])])
	}
	return n
}
