package verbs

// PSN is a packet sequence number: 24 bits, with wraparound.
type PSN uint32

const psnMask = 1<<24 - 1

// Add returns the PSN n packets after p; n may be negative.
func (p PSN) Add(n int) PSN { return PSN(uint32(int(p)+n) & psnMask) }

// Diff returns how many packets p is after q, negative if it is before. At most 2^23
// packets may be outstanding, so the result is unambiguous.
func (p PSN) Diff(q PSN) int { return int(int32((uint32(p)-uint32(q))<<8) >> 8) }

// Before reports whether p is before q.
func (p PSN) Before(q PSN) bool { return p.Diff(q) < 0 }

// QPN is a queue pair number, 24 bits.
type QPN uint32

// MulticastQPN is the destination QPN of multicast packets.
const MulticastQPN QPN = 1<<24 - 1
