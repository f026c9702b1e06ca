package main

import (
	"fmt"
	"runtime"

	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/verbs/soft"
)

// runChild is the child process: it executes the warm-up and n operations of the named row.
func runChild(name string, n int) error {
	for _, c := range perf.CountedOps() {
		if c.Name == name {
			// A switch of threads during the count would confuse callgrind.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			// Only polling drives the devices. Otherwise the engine's goroutine, which takes over
			// when nothing polls, would be counted too, because callgrind slows the program down.
			devices := soft.New(soft.Config{Link: soft.LinkInproc, Engine: soft.EngineInline})
			return perf.RunCounted(perf.Config{Providers: transports.All(), Verbs: devices}, c, n)
		}
	}
	return fmt.Errorf("no operation %q", name)
}
