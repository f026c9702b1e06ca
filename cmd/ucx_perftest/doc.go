// Command ucx_perftest measures latency, bandwidth and message rate between two processes, with
// the options and the output of UCX's tool of that name. The server is started without a host
// name, the client with one. docs/perftest.md describes it; -h lists its options.
//
// It is the command line of package perf, which contains the tests. Start reading at run in
// run.go.
package main
