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
