// Command benchucx measures goucx's ucx_perftest against that of C UCX, side by
// side on this machine: each run of one is followed by the same run of the
// other, on the same two cores, and what counts is the ratio within such a pair.
//
// scripts/bench-ucx starts it. rows.go is the table of what is measured, with
// its targets; stats.go does the statistics; run.go starts the two processes of
// a run. Start reading at main.go.
package main
