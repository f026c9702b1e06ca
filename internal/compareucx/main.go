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
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compare-ucx:", err)
		os.Exit(1)
	}
}

// settings is the parsed command line.
type settings struct {
	filter    *regexp.Regexp
	limit     time.Duration // of each run
	document  string        // file with the table; "": not stored
	verbose   bool
	ours, ucx string   // binaries
	configs   []string // directories of batch files
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("compare-ucx", flag.ContinueOnError)
	f.SetOutput(stderr)
	filter := f.String("t", "", "compare only lines that match this `regexp`; the table is not stored")
	f.DurationVar(&s.limit, "time", 20*time.Second, "`duration` after which a run counts as one that does not end")
	f.StringVar(&s.document, "o", "", "`file` whose table is replaced")
	f.BoolVar(&s.verbose, "v", false, "print both outcomes of each line")
	f.StringVar(&s.ours, "ours", "bin/ucx_perftest", "goucx's `binary`")
	f.StringVar(&s.ucx, "ucx", "ucx_perftest", "UCX's `binary`")
	f.Func("config", "`directory` of batch files, such as UCX's contrib/ucx_perftest_config; each of their lines is compared too", func(dir string) error {
		s.configs = append(s.configs, dir)
		return nil
	})
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	var err error
	if s.filter, err = regexp.Compile(*filter); err != nil {
		return s, fmt.Errorf("-t: %w", err)
	}
	if *filter != "" {
		s.document = ""
	}
	return s, nil
}

// run compares all lines. The error lists the differences that are not known and the known ones that
// do not occur.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	lines := allLines()
	for _, dir := range s.configs {
		more, err := linesOf(dir)
		if err != nil {
			return err
		}
		lines = append(lines, more...)
	}
	var results []result
	for _, l := range lines {
		if !s.filter.MatchString(l.title()) {
			continue
		}
		r, err := s.compare(ctx, l)
		if err != nil {
			return fmt.Errorf("%s: %w", l.title(), err)
		}
		if s.verbose {
			fmt.Fprintf(stderr, "%s\n  UCX:   %+v\n  goucx: %+v\n", l.title(), r.ucx, r.ours)
		}
		for _, fault := range r.faults() {
			fmt.Fprintln(stderr, "compare-ucx:", fault)
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return fmt.Errorf("-t %v matches no line", s.filter)
	}
	text := table(results)
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	if s.document != "" {
		if err := store(s.document, text); err != nil {
			return err
		}
	}
	return verdict(results)
}
