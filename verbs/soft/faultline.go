package soft

import (
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs/wire"
)

// faultLine injects faults into a stream of packets. It is a pure machine: packets go
// in with the time, and come out when they are due. dest of type D is the address that
// a packet is sent to or was received from; faultLine only stores it.
//
//	put ──▶ hook, chances ──▶ held, by time ──▶ take
//
// Concurrency: one goroutine at a time.
type faultLine[D any] struct {
	conf *Faults
	in   bool // the packets were received: only the hook applies
	rng  chances
	held []held[D] // in order of when
	free [][]byte
}

// held is a packet that is delayed until its time.
type held[D any] struct {
	when ucs.Time
	dest D
	b    []byte
}

// newFaultLine creates a faultLine. salt gives devices with equal Faults different
// random numbers.
func newFaultLine[D any](f *Faults, in bool, salt uint64) *faultLine[D] {
	l := &faultLine[D]{conf: f, in: in, rng: chances(f.Seed)}
	l.rng = chances(l.rng.next() ^ salt)
	return l
}

// put copies a packet, from BTH to ICRC, and schedules what take returns for it:
// nothing, the packet, or two copies.
func (l *faultLine[D]) put(dest D, b []byte, now ucs.Time) {
	v := l.judge(b)
	if v.Drop {
		return
	}
	when := now.Add(v.Delay)
	first := l.hold(held[D]{when, dest, b})
	if v.Duplicate {
		l.hold(held[D]{when.Add(v.apart), dest, b})
	}
	if v.Corrupt {
		flipBits(first, v.bits)
	}
}

// take returns the next packet that is due. The caller owns its memory until give.
func (l *faultLine[D]) take(now ucs.Time) (h held[D], ok bool) {
	if len(l.held) == 0 || now.Before(l.held[0].when) {
		return h, false
	}
	h = l.held[0]
	l.held = slices.Delete(l.held, 0, 1)
	return h, true
}

// give returns the memory of a packet to the free list.
func (l *faultLine[D]) give(h held[D]) { l.free = append(l.free, h.b) }

// next returns when the next packet is due; 0: there is none.
func (l *faultLine[D]) next() ucs.Time {
	if len(l.held) == 0 {
		return 0
	}
	return l.held[0].when
}

// hold inserts a copy of a packet behind all that are due at the same time or before.
// It returns the copy.
func (l *faultLine[D]) hold(h held[D]) []byte {
	var buf []byte
	if last := len(l.free) - 1; last >= 0 {
		buf, l.free = l.free[last][:0], l.free[:last]
	}
	h.b = append(buf, h.b...)
	at := len(l.held)
	for at > 0 && h.when < l.held[at-1].when {
		at-- // nearly always the last place is right
	}
	l.held = slices.Insert(l.held, at, h)
	return h.b
}

// judgement is a Verdict with the random parts added.
type judgement struct {
	Verdict
	apart time.Duration // delay of the duplicate behind the first copy
	bits  uint64        // random bits that select the bits to flip
}

// judge calls the hook and draws random numbers. It draws equally many for each packet
// sent, so that one fault does not change where the others occur.
func (l *faultLine[D]) judge(b []byte) judgement {
	c := l.conf
	v := judgement{bits: l.rng.next()}
	if c.Hook != nil {
		if info, ok := infoOf(b, l.in); ok {
			v.Verdict = c.Hook(&info)
		}
	}
	if l.in {
		return v
	}
	jitter := c.Jitter
	if jitter == 0 {
		jitter = defaultJitter
	}
	lost, twice, bad, late := l.rng.float(), l.rng.float(), l.rng.float(), l.rng.float()
	apart, behind := l.rng.upTo(jitter), l.rng.upTo(jitter)
	v.Drop = v.Drop || lost < c.Loss
	v.Corrupt = v.Corrupt || bad < c.Corrupt
	v.Delay += c.Delay
	if twice < c.Duplicate {
		v.Duplicate, v.apart = true, apart
	}
	if late < c.Reorder {
		v.Delay += behind
	}
	return v
}

// infoOf describes a packet; false: b is not a valid packet.
func infoOf(b []byte, in bool) (info PacketInfo, ok bool) {
	p, fault := wire.Parse(b)
	if fault != wire.FaultNone {
		return info, false
	}
	h := p.BTH()
	info = PacketInfo{
		Op: h.Opcode(), Dest: h.Dest(), PSN: h.PSN(), Len: len(p.Payload()),
		AckReq: h.AckReq(), Received: in, Packet: p,
	}
	if p.Info().Headers&wire.HasAETH != 0 {
		info.Syndrome = p.AETH().Syndrome()
	}
	return info, true
}

// uncovered is the byte of the BTH that the ICRC does not cover.
const uncovered = 4

// flipBits flips one to three different bits, selected by r. The ICRC detects every
// error of so few bits.
func flipBits(b []byte, r uint64) {
	bytes := uint64(len(b))
	if bytes <= uncovered {
		return // not a packet
	}
	bits := 8 * (bytes - 1)
	first, step := r>>2%bits, 1+r>>32%(bits/3)
	for i := range 1 + r&3%3 {
		bit := (first + i*step) % bits
		at := bit / 8
		if at >= uncovered {
			at++
		}
		b[at] ^= 1 << (bit % 8)
	}
}
