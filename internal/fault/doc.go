// Package fault names the steps at which tests kill or stop a process: a message
// half copied, a connection not yet accepted, a rendezvous half done.
//
// The packages that take such a step mark it,
//
//	if fault.Enabled {
//		fault.At(fault.Reserve)
//	}
//
// and whole-program tests build their processes with the tag faults. Without it
// Enabled is a constant false and the marks leave nothing in the binary, not even
// in what the compiler counts before it inlines.
//
// With the tag the environment decides: GOUCX_FAULT="point:n:action" acts at the
// n-th hit (from 1) of a point, KILL by SIGKILL, STOP by SIGSTOP to the process
// itself. GOUCX_FAULT_HITS names a file that holds the hits of every point so
// far, whatever becomes of the process; ReadHits reads it.
//
// Used by transports/shm, ucp and test. Start reading at point.go.
package fault
