//go:build race

package soft

// dma copies like an adapter. The program owns registered memory, and an adapter reads
// and writes it without synchronization, also when it retransmits. So dma is hidden
// from the race detector. It does not call copy, which the detector sees even in a
// norace function.
//
//go:norace
func dma(to, from []byte) int {
	n := min(len(to), len(from))
	for i := range n {
		to[i] = from[i]
	}
	return n
}
