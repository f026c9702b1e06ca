// Package sim simulates a datagram network in virtual time: nodes by address, links with latency,
// bandwidth, a queue and faults, partitions, timers. All random choices come from one seed. The
// same seed and the same calls give the same run, event for event, so that a failure is reproduced
// from its seed.
//
//	Send ──▶ link: cut? ─ MTU ─ loss ─ queue ─ wire ─ latency, jitter, stall ──▶ Receiver
//	                                                   └─ duplicate, bit flips
//
// There are no goroutines, no locks and no wall clock: Step executes the next event and advances
// the time to it. Receivers and timers run inside Step. They may send, set timers and change
// links; they must not call Step.
//
// The test suites of protocols use it: the software RNIC, and handshakes. Start reading at net.go;
// link.go models a datagram in transit.
package sim
