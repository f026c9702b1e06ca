package platform

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Names of the features that Probe tries.
const (
	Memfd            = "memfd"              // sealed memory segments
	AbstractSockets  = "abstract-sockets"   // Unix sockets without a file
	FDPassing        = "fd-passing"         // SCM_RIGHTS
	EventFD          = "eventfd"            // waking a sleeper
	GlobalBarrier    = "membarrier-global"  // across processes
	PrivateBarrier   = "membarrier-private" // within one
	PidfdOpen        = "pidfd_open"         // noticing a peer's death
	PeerPidfd        = "so_peerpidfd"       // the same, of the process behind a socket
	CrossProcessCopy = "process_vm"         // process_vm_readv and writev
)

// Feature is one thing that the system may refuse.
type Feature struct {
	Name      string
	Available bool
	Reason    string // why not; or, of an available one, what limits it
}

// Report is what Probe found.
type Report struct {
	Features []Feature
	Identity Identity
}

// Probe tries everything once, in some milliseconds, and gives the same answer
// ever after.
func Probe() Report {
	r := probed()
	r.Features = slices.Clone(r.Features)
	return r
}

var probed = sync.OnceValue(func() Report {
	return Report{Features: probe(), Identity: Self()}
})

// Feature looks one up; an unknown name is not available, and says so.
func (r Report) Feature(name string) Feature {
	for _, f := range r.Features {
		if f.Name == name {
			return f
		}
	}
	return Feature{Name: name, Reason: "not probed"}
}

// Missing lists the features that the system refuses.
func (r Report) Missing() []Feature {
	return slices.DeleteFunc(slices.Clone(r.Features), func(f Feature) bool { return f.Available })
}

// String is a table of the features, a line each.
func (r Report) String() string {
	var b strings.Builder
	for _, f := range r.Features {
		state := "yes"
		if !f.Available {
			state = "no"
		}
		line := fmt.Sprintf("%-20s %-3s  %s", f.Name, state, f.Reason)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// tried makes a Feature of a try's outcome.
func tried(name string, err error) Feature {
	if err != nil {
		return Feature{Name: name, Reason: err.Error()}
	}
	return Feature{Name: name, Available: true}
}
