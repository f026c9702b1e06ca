// Package perf is the benchmark library behind ucx_perftest: the list of tests, their parameters,
// the measured loops and the arithmetic of the report. Its caller provides the transports and the
// connection to the other side. The package prints nothing.
//
// [Tests] is the table of tests, [Params] selects what to run, and [Run] runs it and returns a
// [Result]. Both sides call Run with the same Params; the side with index 0 measures.
//
// # What is measured
//
// Tests, windows, meanings and arithmetic are those of UCX's libperf. A ping-pong reports half of
// a round trip, a stream the time between sends. The percentile is that of the last 2048 stamps.
//
// One difference makes streams cheaper to measure: their loop reads the clock every 64th message below 1 MiB.
// So the rate is that of the messages and not of the clock, and a percentile is one of means of 64
// messages. Params.StampEach reads the clock at every message, as UCX does. A ping-pong is stamped
// at every message, right after the send, while the message is in flight.
//
// With several threads, each has its own worker, endpoint, clock and rows. team.go starts them and
// computes the last row. Threads, and tests that block, cannot poll for the other side's failure;
// watch.go does it for them. The two threads of a verbs test are its two sides (verbs_threads.go).
// A verbs test with one thread within one process drives both sides from that thread
// (verbs_both.go). The threads of verbs_rate share verbs objects by a plan (verbs_rate.go).
//
// # Rules of the loops
//
// A loop is one function for one operation and form. It branches on no parameter and allocates
// nothing. It calls a function in every spin, so that the garbage collector can stop it. It checks
// for the other side's death in spins only.
//
// Start reading at Run and, for a loop, at ucp_tag.go.
package perf
