//go:build race

package soft

import "sync/atomic"

// crossings shows the race detector an ordering that the kernel provides: what precedes
// the sending of a datagram happens before what follows its arrival.
var crossings atomic.Uint64

func crossed() { crossings.Add(1) }
