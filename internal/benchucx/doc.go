// Command benchucx compares goucx's ucx_perftest with that of C UCX on this machine. Each run of
// one is followed by the same run of the other, on the same two cores. The result is the ratio
// within such a pair.
//
// scripts/bench-ucx starts it. rows.go is the table of measurements, with their targets; stats.go
// computes the statistics; run.go starts the two processes of a run. Start reading at main.go.
package main
