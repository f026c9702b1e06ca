package main

import (
	"fmt"
	"runtime"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/platform"
)

// system prints -s.
func (t *tool) system() error {
	t.line("Timer frequency: %.3f MHz", cpu.CyclesPerSecond()/1e6)
	t.filters(config.LocalHost())
	t.line("Processor: %s", cpu.SystemModel())
	if mine, err := cpu.Affinity(); err == nil {
		t.line("CPUs usable by this process: %s", cpu.FormatList(mine))
	}
	t.scheduler()
	t.identity()
	t.line("")
	t.topology()
	t.line("")
	t.line("System services")
	t.line("")
	t.services(featureViews(platform.Probe().Features))
	return nil
}

// filters prints the values that the sections of ucx.conf are matched against, with the names used
// there.
func (t *tool) filters(h config.Host) {
	t.line("CPU vendor: %s", h.CPUVendor)
	t.line("CPU model: %s", h.CPUModel)
	if name := h.DMI["product_name"]; name != "" {
		t.line("DMI product name: %s", name)
	}
}

// scheduler prints the maximum delay of the async goroutine, which depends on the Go scheduler.
func (t *tool) scheduler() {
	n := runtime.GOMAXPROCS(0)
	bound := "1 ms"
	if n == 1 {
		bound = "20 ms beside a computing goroutine"
	}
	t.line("GOMAXPROCS: %d; timers and events of a program that does not poll come within %s", n, bound)
}

// identity prints what two processes must have in common to share memory.
func (t *tool) identity() {
	id := platform.Probe().Identity
	t.line("Host: %s, boot %s, uid %d", id.Hostname, id.BootID, id.UID)
	t.line("Namespaces: pid %d, net %d", id.PIDNamespace, id.NetNamespace)
}

// topology prints the processors, or why they are unknown.
func (t *tool) topology() {
	t.line("Topology")
	t.line("")
	top, err := cpu.System()
	if err != nil {
		t.line("    unknown: %v", err)
		return
	}
	for _, c := range top.CPUs {
		t.line("    cpu %d: core %s package %s node %d", c.ID, known(c.Core), known(c.Package), c.Node)
		for _, k := range c.Caches {
			t.line("        L%d %s %s, cpus %s", k.Level, k.Type, sizeText(k.Size), cpu.FormatList(k.Shared))
		}
	}
}

// systemTopology prints -T: UCX's table of the distances between system devices, of which goucx
// knows none, and the processors.
func (t *tool) systemTopology() error {
	t.line("")
	t.line("System topology:")
	t.line("")
	for _, row := range [...]string{"+------+", "|      |", "| MB/s |", "|      |", "+------+"} {
		t.line("%s", row)
	}
	t.line("")
	t.topology()
	return nil
}

func known(n int) string {
	if n == cpu.Unknown {
		return "?"
	}
	return fmt.Sprint(n)
}
