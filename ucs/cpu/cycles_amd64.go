package cpu

// Cycles reads the processor's time-stamp counter: about 9 ns, not ordered
// against other instructions. It runs at a constant rate on every processor of
// the last decade; see CyclesPerSecond.
//
//go:noescape
func Cycles() uint64

//go:noescape
func prefetch(p uintptr, lines int)

// Pause tells the processor that this is a spin loop: it saves power and leaves
// the core's other thread more room. About 15 ns.
//
//go:noescape
func Pause()
