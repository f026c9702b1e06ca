// Command compareucx runs the same command lines through the ucx_perftest of C UCX and through that
// of goucx: each test, each option with its values, and lines of batch files. It compares the exit
// status, the columns and the rows of the client, and the server's output.
//
// lines.go is the table of lines, differences.go that of the known differences with their reasons. A
// difference that is not in the table is an error, and so is one in the table that does not occur.
// scripts/compare-ucx starts it. Start reading at main.go.
package main
