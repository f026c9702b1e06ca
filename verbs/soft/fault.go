package soft

import (
	"errors"
	"fmt"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Faults injects faults into the traffic of a device, for tests. It acts on single
// packets, on every link, before segment batches are built. Chances are probabilities
// between 0 and 1. All but ReceiveLoss concern packets that the device sends.
type Faults struct {
	// Seed seeds the random numbers. The same packets in the same order meet the same
	// faults.
	Seed uint64
	// Loss is the chance that a packet is dropped, Duplicate that it is sent twice.
	Loss, Duplicate float64
	// ReceiveLoss is the chance that a received packet is dropped before the device looks
	// at it. So packets are lost in both directions although the peer has no faults.
	ReceiveLoss float64
	// Reorder is the chance that a packet is delayed by up to Jitter, so that later
	// packets overtake it.
	Reorder float64
	// Corrupt is the chance that bits flip, so that the ICRC is wrong.
	Corrupt float64
	// Delay is the time by which each packet is delayed. It keeps their order.
	Delay time.Duration
	// Jitter is the longest additional delay of a reordered or duplicated packet; 0:
	// 100 µs.
	Jitter time.Duration
	// Hook decides what happens to a packet, in addition to the chances; nil: nothing.
	// It sees each packet that the device sends, and each that it receives
	// (PacketInfo.Received).
	//
	// Hook runs on the goroutine that sends or receives, one call at a time. It must
	// not use the device.
	Hook func(p *PacketInfo) Verdict
}

// defaultJitter replaces a Jitter of 0.
const defaultJitter = 100 * time.Microsecond

// PacketInfo describes a packet to Faults.Hook.
type PacketInfo struct {
	Op wire.Opcode
	// Dest is the destination queue pair.
	Dest verbs.QPN
	PSN  verbs.PSN
	// Len is the length of the payload in bytes.
	Len    int
	AckReq bool
	// Syndrome is that of an acknowledgement or response; 0 for other packets.
	Syndrome wire.Syndrome
	// Received is true for a received packet and false for a packet to be sent.
	Received bool
	// Packet is the whole packet, valid during the call. Its ICRC is meaningless.
	Packet wire.Packet
}

// concernReceived reports whether received packets may have faults.
func (f *Faults) concernReceived() bool { return f.Hook != nil || f.ReceiveLoss > 0 }

// Verdict is what happens to a packet. The zero Verdict lets it pass.
type Verdict struct {
	// Drop drops the packet, whatever the other fields are.
	Drop bool
	// Duplicate sends a second copy right after the packet.
	Duplicate bool
	// Corrupt flips bits of the packet, but not of its duplicate.
	Corrupt bool
	// Delay delays the packet, in addition to Faults.Delay.
	Delay time.Duration
}

// Validate returns an error that names all fields out of range.
func (f *Faults) Validate() error {
	var errs []error
	for _, c := range []struct {
		name string
		p    float64
	}{{"Loss", f.Loss}, {"ReceiveLoss", f.ReceiveLoss}, {"Duplicate", f.Duplicate}, {"Reorder", f.Reorder}, {"Corrupt", f.Corrupt}} {
		if !(c.p >= 0 && c.p <= 1) {
			errs = append(errs, fmt.Errorf("faults: %s %v, want 0 to 1: %w", c.name, c.p, ucs.ErrInvalid))
		}
	}
	if f.Delay < 0 || f.Jitter < 0 {
		errs = append(errs, fmt.Errorf("faults: negative delay: %w", ucs.ErrInvalid))
	}
	return errors.Join(errs...)
}

// splitMix64 is a random number generator (splitmix64: G. Steele et al., "Fast splittable
// pseudorandom number generators", 2014).
type splitMix64 uint64

func (c *splitMix64) next() uint64 {
	*c += 0x9e3779b97f4a7c15
	z := uint64(*c)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// float returns a number in [0, 1).
func (c *splitMix64) float() float64 { return float64(c.next()>>11) / (1 << 53) }

// below returns a duration in [0, d).
func (c *splitMix64) below(d time.Duration) time.Duration {
	return time.Duration(c.float() * float64(d))
}
