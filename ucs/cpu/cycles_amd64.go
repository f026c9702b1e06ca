package cpu

// Cycles reads the processor's time-stamp counter, which takes about 9 ns. The read is not
// ordered with other instructions. The counter has had a constant rate on every processor of
// the last decade; see CyclesPerSecond.
//
//go:noescape
func Cycles() uint64

//go:noescape
func prefetch(p uintptr, lines int)

//go:noescape
func demote(p uintptr, lines int)

// Pause marks a spin loop for the processor. It saves power and leaves more resources to the
// core's other hardware thread. It takes about 15 ns.
//
//go:noescape
func Pause()
