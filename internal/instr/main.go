package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "instructions:", err)
		os.Exit(1)
	}
}

// run measures, prints the table to stdout and stores it. The error lists what could not be
// counted and which musts do not hold.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	f := flag.NewFlagSet("instructions", flag.ContinueOnError)
	filter := f.String("t", "", "count only rows that match this `regexp`")
	file := f.String("o", "", "`file` that the table is stored in; empty: not stored")
	child := f.String("child", "", "carry out the `operation` and nothing else: how the tool starts itself")
	n := f.Int("n", many, "`times` that -child does it")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *child != "" {
		return runChild(*child, *n)
	}
	chosen, err := regexp.Compile(*filter)
	if err != nil {
		return fmt.Errorf("-t: %w", err)
	}
	counts, err := measureAll(ctx, chosen)
	if len(counts) == 0 {
		return errors.Join(err, fmt.Errorf("no row matches %q", *filter))
	}
	doc, derr := document(ctx, counts)
	fmt.Fprint(stdout, doc)
	err = errors.Join(err, derr)
	if *file != "" && err == nil {
		err = os.WriteFile(*file, []byte(doc), 0o644)
	}
	return errors.Join(err, verdict(counts))
}
