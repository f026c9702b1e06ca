package verbs

// PSN is a packet sequence number: 24 bits that wrap.
type PSN uint32

const psnMask = 1<<24 - 1

// Add gives the number n packets later; n may be negative.
func (p PSN) Add(n int) PSN { return PSN(uint32(int(p)+n) & psnMask) }

// Diff is how many packets p lies after q: negative where it lies before. At
// most 2^23 packets may be outstanding, so the answer is unambiguous.
func (p PSN) Diff(q PSN) int { return int(int32((uint32(p)-uint32(q))<<8) >> 8) }

// Before reports whether p lies before q.
func (p PSN) Before(q PSN) bool { return p.Diff(q) < 0 }

// QPN is a queue pair number of 24 bits.
type QPN uint32

// MulticastQPN is the number that multicast packets carry.
const MulticastQPN QPN = 1<<24 - 1
