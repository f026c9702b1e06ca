package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run tests the mutants and prints a line of the table after each. The working directory is the
// module's root, which is only read.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	chosen := choose(all(), args)
	if len(chosen) == 0 {
		return fmt.Errorf("no mutant's name contains %q", args)
	}
	if err := applyAll(chosen, os.ReadFile); err != nil {
		return err
	}
	began := time.Now()
	l, err := newLab(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	var errs []error
	fmt.Fprintf(stdout, "%-62s %-62s %-22s %s\n", "mutant", "test", "outcome", "seconds")
	for _, m := range chosen {
		start := time.Now()
		o, err := l.try(ctx, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Fprintf(stdout, "%-62s %-62s %-22s %.1f\n", m.name, m.where(), o, time.Since(start).Seconds())
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
		}
	}
	fmt.Fprintf(stdout, "%d mutants, %d survived or could not be judged, %.0f s\n", len(chosen), len(errs), time.Since(began).Seconds())
	return errors.Join(errs...)
}

// choose returns the mutants whose names contain one of words, or all if there are no words.
func choose(ms []mutant, words []string) []mutant {
	return slices.DeleteFunc(ms, func(m mutant) bool {
		return len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(m.name, w) })
	})
}
