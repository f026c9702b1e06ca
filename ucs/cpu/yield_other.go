//go:build !linux

package cpu

import "runtime"

// Yield yields the processor to other goroutines.
func Yield() { runtime.Gosched() }
