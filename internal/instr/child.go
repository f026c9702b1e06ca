package main

import (
	"fmt"
	"runtime"

	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/verbs/soft"
)

// carryOut is the child's part: n operations, and those that warm, by name.
func carryOut(name string, n int) error {
	for _, c := range perf.CountedOps() {
		if c.Name == name {
			// A switch of threads in the midst of it would confuse callgrind.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			// Nobody but who polls drives the devices: the other goroutine, which takes
			// over when nobody does, would be counted too, since time runs slowly here.
			devices := soft.New(soft.Config{Link: soft.LinkInproc, Engine: soft.EngineInline})
			return perf.RunCounted(perf.Config{Providers: transports.All(), Verbs: devices}, c, n)
		}
	}
	return fmt.Errorf("no operation %q", name)
}
