// Command ucx_perftest measures latency, bandwidth and message rate between
// two processes, with the options and the output of UCX's tool of that name:
// the server is started without a host name, the client with it.
// docs/perftest.md describes it; -h lists its options.
//
// It is the face of package perf, which holds the tests themselves. Start
// reading at run in run.go.
package main
