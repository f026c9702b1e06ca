package perf

import "github.com/goucx/goucx/ucs/cpu"

// cycles reads the counter from which stamps are taken.
func cycles() uint64 { return cpu.Cycles() }

// cycleNanos returns the length of a cycle in nanoseconds.
func cycleNanos() float64 { return 1e9 / cpu.CyclesPerSecond() }
