package shm

import (
	"os"
	"strings"
	"sync"

	"github.com/goucx/goucx/ucs/cpu"
)

// nodes has the pages of rings allocated on the NUMA node of the process that reads them, which polls them all the
// time. Each side places the ring that it reads, as soon as it maps it. A page that the sender has written before keeps
// its node. Where a process runs when it connects is taken for where it runs later.
type nodes struct {
	of      map[int]int                       // node of each processor
	several bool                              // otherwise nothing is to be placed
	current func() int                        // the processor that executes the call
	prefer  func(mem []byte, node uint) error // for pages that are not allocated yet
}

// machineNodes returns the nodes of this machine. Tests replace it.
var machineNodes = sync.OnceValue(func() *nodes {
	// The whole topology takes some files for each processor.
	online, err := os.ReadFile("/sys/devices/system/node/online")
	if err != nil || !strings.ContainsAny(string(online), "-,") {
		return &nodes{}
	}
	t, err := cpu.System()
	if err != nil {
		return &nodes{}
	}
	return newNodes(t)
})

func newNodes(t *cpu.Topology) *nodes {
	n := &nodes{of: map[int]int{}, current: currentCPU, prefer: preferNode}
	for _, c := range t.CPUs {
		n.of[c.ID] = c.Node
		n.several = n.several || c.Node != t.CPUs[0].Node
	}
	return n
}

// place places the ring in mem[from:to]. A page that it shares with the other ring is left out. It reports whether the
// machine has several nodes. A refusal by the system costs time alone.
func (n *nodes) place(mem []byte, from, to int) bool {
	if !n.several {
		return false
	}
	page := os.Getpagesize()
	from = (from + page - 1) / page * page
	if to < len(mem) {
		to = to / page * page
	}
	if node, ok := n.of[n.current()]; ok && node >= 0 && from < to {
		_ = n.prefer(mem[from:to], uint(node))
	}
	return true
}
