//go:build race

package udp

import "sync/atomic"

// raceSyncs shows the race detector an ordering that the kernel provides: what precedes
// the sending of a datagram happens before what follows its arrival.
var raceSyncs atomic.Uint64

func raceSync() { raceSyncs.Add(1) }
