// Command ucx_perftest measures latency, bandwidth and message rate between
// two processes, with the options and the output of UCX's tool of that name:
// the server is started without a host name, the client with it.
// docs/perftest.md describes it; -h lists its options.
package main

import (
	"fmt"
	"os"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "ucx_perftest: %v\n", err)
	os.Exit(exitCode(err))
}
