// Package fault names the points at which tests kill or stop a process: a message half copied, a
// connection not yet accepted, a rendezvous half done.
//
// Packages mark such a point,
//
//	if fault.Enabled {
//		fault.At(fault.Reserve)
//	}
//
// and whole-program tests build their processes with the tag faults. Without it Enabled is a
// constant false. The marks then leave nothing in the binary and do not count for the compiler's
// inlining budget. A function that is never inlined calls At without the condition.
//
// With the tag, the environment selects an action. GOUCX_FAULT="point:n:action" acts at the n-th
// hit (from 1) of a point: KILL sends SIGKILL, STOP sends SIGSTOP to the process itself.
// GOUCX_FAULT_HITS names a file with the hit counts of every point, which survives the process;
// ReadHits reads it.
//
// transports/shm, ucp and test use the package. Start reading at point.go.
package fault
