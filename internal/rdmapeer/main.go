package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	err := command(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "rdmapeer:", err)
		os.Exit(1)
	}
}

// command runs the command line and prints the result to stdout.
func command(args []string, stdout, stderr io.Writer) error {
	p, err := parse(args, stderr)
	if err != nil {
		return err
	}
	res, err := execute(p, nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, res)
	return err
}
