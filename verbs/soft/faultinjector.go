package soft

import (
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs/wire"
)

// faultInjector injects faults into a stream of packets. It is a pure machine: packets go
// in with the time, and come out when they are due. dest of type D is the address that
// a packet is sent to or was received from; faultInjector only stores it.
//
//	put ──▶ hook, chances ──▶ held, by time ──▶ take
//
// Concurrency: one goroutine at a time.
type faultInjector[D any] struct {
	conf     *Faults
	received bool // the packets were received: only the hook and ReceiveLoss apply
	rng      splitMix64
	delayed  []delayedPacket[D] // in order of when
	free     [][]byte
}

// delayedPacket is a packet that is delayed until its time.
type delayedPacket[D any] struct {
	when ucs.Time
	dest D
	b    []byte
}

// newFaultInjector creates a faultInjector. Devices with equal Faults draw different
// random numbers if their salts differ.
func newFaultInjector[D any](f *Faults, in bool, salt uint64) *faultInjector[D] {
	l := &faultInjector[D]{conf: f, received: in, rng: splitMix64(f.Seed)}
	l.rng = splitMix64(l.rng.next() ^ salt)
	return l
}

// put copies a packet, from BTH to ICRC, and schedules what take returns for it:
// nothing, the packet, or two copies.
func (l *faultInjector[D]) put(dest D, b []byte, now ucs.Time) {
	v := l.decide(b)
	if v.Drop {
		return
	}
	when := now.Add(v.Delay)
	first := l.delay(delayedPacket[D]{when, dest, b})
	if v.Duplicate {
		l.delay(delayedPacket[D]{when.Add(v.gap), dest, b})
	}
	if v.Corrupt {
		flipBits(first, v.bits)
	}
}

// take returns the next packet that is due. The caller owns its memory until give.
func (l *faultInjector[D]) take(now ucs.Time) (h delayedPacket[D], ok bool) {
	if len(l.delayed) == 0 || now.Before(l.delayed[0].when) {
		return h, false
	}
	h = l.delayed[0]
	l.delayed = slices.Delete(l.delayed, 0, 1)
	return h, true
}

// recycle returns the memory of a packet to the free list.
func (l *faultInjector[D]) recycle(h delayedPacket[D]) { l.free = append(l.free, h.b) }

// delay inserts a copy of a packet behind all that are due at the same time or before.
// It returns the copy.
func (l *faultInjector[D]) delay(h delayedPacket[D]) []byte {
	var buf []byte
	if last := len(l.free) - 1; last >= 0 {
		buf, l.free = l.free[last][:0], l.free[:last]
	}
	h.b = append(buf, h.b...)
	at := len(l.delayed)
	for at > 0 && h.when < l.delayed[at-1].when {
		at-- // nearly always the last place is right
	}
	l.delayed = slices.Insert(l.delayed, at, h)
	return h.b
}

// decision is a Verdict with the random parts added.
type decision struct {
	Verdict
	gap  time.Duration // delay of the duplicate behind the first copy
	bits uint64        // random bits that select the bits to flip
}

// decide calls the hook and draws random numbers. It draws equally many for each packet
// sent, so that one fault does not change where the others occur.
func (l *faultInjector[D]) decide(b []byte) decision {
	c := l.conf
	v := decision{bits: l.rng.next()}
	if c.Hook != nil {
		if info, ok := newPacketInfo(b, l.received); ok {
			v.Verdict = c.Hook(&info)
		}
	}
	if l.received {
		v.Drop = c.ReceiveLoss > 0 && l.rng.float() < c.ReceiveLoss || v.Drop
		return v
	}
	jitter := c.Jitter
	if jitter == 0 {
		jitter = defaultJitter
	}
	lost, twice, bad, late := l.rng.float(), l.rng.float(), l.rng.float(), l.rng.float()
	apart, behind := l.rng.below(jitter), l.rng.below(jitter)
	v.Drop = v.Drop || lost < c.Loss
	v.Corrupt = v.Corrupt || bad < c.Corrupt
	v.Delay += c.Delay
	if twice < c.Duplicate {
		v.Duplicate, v.gap = true, apart
	}
	if late < c.Reorder {
		v.Delay += behind
	}
	return v
}

// newPacketInfo describes a packet; false: b is not a valid packet.
func newPacketInfo(b []byte, in bool) (info PacketInfo, ok bool) {
	p, fault := wire.Parse(b)
	if fault != wire.FaultNone {
		return info, false
	}
	info = PacketInfo{
		Op: p.Opcode, Dest: p.DestQP, PSN: p.PSN, Len: len(p.Payload),
		AckReq: p.AckReq, Received: in, Packet: p,
	}
	if p.Opcode.Info().Headers&wire.HasAETH != 0 {
		info.Syndrome = p.Syndrome
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
