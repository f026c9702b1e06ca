// Command instr counts the instructions of single operations with valgrind's
// callgrind, beside the counts of UCX, and prints them as a table.
//
// It starts itself under callgrind, twice for each row of rows.go; that child
// carries the operation out a number of times (perf.RunCounted), and the
// difference of two numbers is what the operation costs. scripts/instructions starts
// it. Start reading at main.go.
package main
