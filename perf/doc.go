// Package perf is the benchmark library behind ucx_perftest: the list of
// tests, their parameters, the loops that are measured and the arithmetic of
// the report. It is handed the transports that it measures and the connection
// to the other side; it prints nothing.
//
// [Tests] is the table of tests, [Params] says what to run, [Run] runs it and
// gives a [Result]. Both sides call Run with the same Params; the one with
// index 0 measures.
//
// # What is measured
//
// Tests, windows, meanings and arithmetic are those of UCX's libperf: a
// ping-pong reports half of a round trip, a stream the time between sends, and
// the percentile is that of the last 2048 stamps.
//
// One difference makes streams faster to measure: their loop reads the clock
// every 64th message, so that the rate is that of the messages and not of the
// clock; a percentile is then one of means of 64. Params.StampEach reads it at
// every message as UCX does. A ping-pong is stamped at every message, right
// after the send, while the message flies.
//
// With several threads each has a worker, an endpoint, a clock and rows of its
// own; team.go starts them and makes the last row. Threads, and tests that
// sleep, cannot look for the other side's failure themselves: watch.go does. The
// two threads of a test of verbs are its two sides (verbs_threads.go), and where
// it has one thread within one process, that drives both (verbs_both.go).
//
// # Rules of the loops
//
// A loop is one function for one operation and form; it branches on no
// parameter, allocates nothing, and calls something in every spin, so that the
// collector can stop it. The other side's death is looked for in spins only.
//
// Start reading at Run and, for a loop, at ucp_tag.go.
package perf
