package cpu

import (
	"runtime"
	"syscall"
)

// Yield yields the processor to other goroutines, then to other threads. It is for loops
// that have spun for a while. If more threads spin than there are processors, it replaces
// the wait for the end of a time slice by a switch. It takes about 0.4 us if nothing else
// runs.
func Yield() {
	runtime.Gosched()
	_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) // never fails
}
