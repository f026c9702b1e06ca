package main

import (
	"fmt"
	"runtime"

	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/transports"
)

// carryOut is the child's part: n operations, and those that warm, by name.
func carryOut(name string, n int) error {
	for _, c := range perf.CountedOps() {
		if c.Name == name {
			// A switch of threads in the midst of it would confuse callgrind.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			return perf.RunCounted(perf.Config{Providers: transports.All()}, c, n)
		}
	}
	return fmt.Errorf("no operation %q", name)
}
