package soft

import (
	"errors"
	"fmt"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Faults is what a device does to packets beside carrying them, for tests:
// packet by packet, on whatever link, before packets are put together to trains.
// The chances are between 0 and 1 and concern the packets that the device sends;
// a bad path in both directions takes two devices with faults.
type Faults struct {
	// Seed is where the chances come from: the same packets in the same order meet
	// the same faults.
	Seed uint64
	// Loss is the chance of being dropped, Duplicate that of going out twice.
	Loss, Duplicate float64
	// Reorder is the chance of being held back for up to Jitter, which lets later
	// packets overtake.
	Reorder float64
	// Corrupt is the chance that bits flip, so that the checksum does not fit.
	Corrupt float64
	// Delay is how long every packet is held back; the order stays.
	Delay time.Duration
	// Jitter is how long a reordered or duplicated packet is held back at most
	// beside Delay; 0: 100 µs.
	Jitter time.Duration
	// Hook sees each packet that the device sends, and over any link but UDP each
	// that it receives, and says what becomes of it; the chances come on top. nil:
	// nothing. It is called by
	// whatever goroutine sends or receives, one at a time, and must not use the
	// device.
	Hook func(p *PacketInfo) Verdict
}

// defaultJitter is the Jitter of Faults where it is 0.
const defaultJitter = 100 * time.Microsecond

// PacketInfo is what Faults.Hook sees of a packet.
type PacketInfo struct {
	Op wire.Opcode
	// Dest is the queue pair that the packet goes to.
	Dest verbs.QPN
	PSN  verbs.PSN
	// Len is the length of the payload in bytes.
	Len    int
	AckReq bool
	// Syndrome of an acknowledgement or answer; else 0.
	Syndrome wire.Syndrome
	// Received: the packet has come; else it is on its way out.
	Received bool
	// Packet is all of it, valid during the call. Its ICRC says nothing.
	Packet wire.Packet
}

// Verdict is what becomes of a packet. The zero Verdict lets it pass.
type Verdict struct {
	// Drop loses the packet, whatever else is said.
	Drop bool
	// Duplicate has a second one follow at once.
	Duplicate bool
	// Corrupt flips bits, not those of the duplicate.
	Corrupt bool
	// Delay holds it back, beside Faults.Delay.
	Delay time.Duration
}

// Validate names all that is out of range.
func (f *Faults) Validate() error {
	var errs []error
	for _, c := range []struct {
		name string
		p    float64
	}{{"Loss", f.Loss}, {"Duplicate", f.Duplicate}, {"Reorder", f.Reorder}, {"Corrupt", f.Corrupt}} {
		if !(c.p >= 0 && c.p <= 1) {
			errs = append(errs, fmt.Errorf("faults: %s %v is no chance: %w", c.name, c.p, ucs.ErrInvalid))
		}
	}
	if f.Delay < 0 || f.Jitter < 0 {
		errs = append(errs, fmt.Errorf("faults: negative delay: %w", ucs.ErrInvalid))
	}
	return errors.Join(errs...)
}

// chances draws numbers from a seed (splitmix64: G. Steele et al., "Fast
// splittable pseudorandom number generators", 2014).
type chances uint64

func (c *chances) next() uint64 {
	*c += 0x9e3779b97f4a7c15
	z := uint64(*c)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// float gives a number from 0 up to, but not, 1.
func (c *chances) float() float64 { return float64(c.next()>>11) / (1 << 53) }

// upTo gives a part of d.
func (c *chances) upTo(d time.Duration) time.Duration {
	return time.Duration(c.float() * float64(d))
}
