package platform

import (
	"slices"
	"sync"
)

// Names of the features that Probe tries.
const (
	Memfd            = "memfd"              // sealed memory segments
	AbstractSockets  = "abstract-sockets"   // Unix sockets without a file
	FDPassing        = "fd-passing"         // SCM_RIGHTS
	EventFD          = "eventfd"            // wake-ups
	GlobalBarrier    = "membarrier-global"  // between processes
	PrivateBarrier   = "membarrier-private" // within a process
	PidfdOpen        = "pidfd_open"         // detects the death of a peer
	PeerPidfd        = "so_peerpidfd"       // the same, for the process at the other end of a socket
	CrossProcessCopy = "process_vm"         // process_vm_readv and process_vm_writev
)

// Feature is a feature that the system may refuse.
type Feature struct {
	Name      string
	Available bool
	Reason    string // why it is not available, or the restrictions of an available one
}

// Report is the result of Probe.
type Report struct {
	Features []Feature
	Identity Identity
}

// Probe tries all features once, which takes some milliseconds. Later calls return the same
// report.
func Probe() Report {
	r := probed()
	r.Features = slices.Clone(r.Features)
	return r
}

var probed = sync.OnceValue(func() Report {
	return Report{Features: probe(), Identity: Self()}
})

// featureOf returns the Feature for the result of a try.
func featureOf(name string, err error) Feature {
	if err != nil {
		return Feature{Name: name, Reason: err.Error()}
	}
	return Feature{Name: name, Available: true}
}
