package rc

import (
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// odd processes a receive completion that is not a valid message on a QP with pair.plain set.
//
//go:noinline
func (f *iface) odd(p *pair, wc *verbs.WC) {
	buf := uint32(wc.ID)
	f.posted--
	switch {
	case p == nil || wc.Status != verbs.WCSuccess || p.retired != 0:
		f.rx.Give(buf) // flushed, or for a retired QP
	case wc.Len < headLen:
		f.rx.Give(buf)
		f.stats.Inc(statGarbage)
		f.failLater(p.e, failErr("it sent a message shorter than the header"))
	default:
		p.early = append(p.early, *wc)
		f.lateOf(p)
		if p.e.m.TxPending() == p.id {
			p.e.step(machine.Event{Kind: machine.EventDataReceived, Pair: p.id})
		}
	}
}

// lateOf schedules the delivery of the messages in pair.early, if p is read.
func (f *iface) lateOf(p *pair) {
	if p.reads {
		f.late = append(f.late, p)
		f.attention = true
	}
}

// deliverLate delivers the messages that arrived on QPs before these were read.
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
		f.posted += len(es) // iface.arrived subtracts them once more
		for len(es) > 0 && !p.closed {
			k := min(len(es), len(f.recvs))
			if !p.plain { // one of the messages was a marker
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

// settle updates pair.plain.
func (p *pair) settle() {
	p.plain = p.reads && len(p.early) == 0 && p.e.m.TxPending() != p.id && p.retired == 0
}

// stashAll drains the receive completion queue into iface.stash.
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

// unstash removes completions from iface.stash.
func (f *iface) unstash(wcs []verbs.WC) int {
	k := copy(wcs, f.stash[f.stashAt:])
	f.stashAt += k
	if f.stashAt == len(f.stash) {
		f.stash, f.stashAt = f.stash[:0], 0
	}
	return k
}

// drainStash processes all completions in iface.stash.
func (f *iface) drainStash() (n int) {
	for f.stashAt < len(f.stash) {
		n += f.arrived(f.recvs[:f.unstash(f.recvs[:])])
	}
	return n
}
