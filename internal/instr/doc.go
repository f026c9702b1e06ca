// Command instr counts the instructions of single operations with valgrind's callgrind and prints
// them as a table beside UCX's counts.
//
// It runs itself under callgrind, twice for each row of rows.go, with different numbers of
// operations (perf.RunCounted). The difference of the two counts is the cost of an operation.
// scripts/instructions starts it. Start reading at main.go.
package main
