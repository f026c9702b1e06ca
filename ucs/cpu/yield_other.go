//go:build !linux

package cpu

import "runtime"

// Yield offers the processor to other goroutines.
func Yield() { runtime.Gosched() }
