package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/goucx/goucx/perf"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "ucx_perftest: %v\n", err)
	if errors.Is(err, perf.ErrInterrupted) {
		dieInterrupted()
	}
	os.Exit(exitCode(err))
}
