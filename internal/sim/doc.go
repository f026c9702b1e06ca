// Package sim is a network of datagrams in virtual time: nodes by address, links
// with latency, bandwidth, a queue and faults, partitions, timers. Everything
// comes from one seed: the same seed and the same calls give the same run, event
// for event, so that a failure is found again by its seed.
//
//	Send ──▶ link: cut? ─ MTU ─ loss ─ queue ─ wire ─ latency, jitter, stall ──▶ Receiver
//	                                                   └─ duplicate, bit flips
//
// There is no goroutine, no lock and no wall clock: Step carries out the next
// event and moves the time to it. Receivers and timers run inside Step and may
// send, set timers and change links; they must not call Step.
//
// The suites of protocols use it: the software RNIC, and handshakes. Start
// reading at net.go; link.go is what happens to a datagram on its way.
package sim
