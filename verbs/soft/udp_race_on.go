//go:build race

package soft

import "sync/atomic"

// crossings lets the race detector see what the kernel does: what happened before
// a datagram was sent has happened before whatever follows its arrival.
var crossings atomic.Uint64

func crossed() { crossings.Add(1) }
