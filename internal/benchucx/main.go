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
		fmt.Fprintln(os.Stderr, "bench-ucx:", err)
		os.Exit(1)
	}
}

// plan is the parsed command line.
type plan struct {
	pairs          int
	filter         *regexp.Regexp
	length         time.Duration // of each run
	server, client int           // cores
	dir            string        // directory of the results; "": not stored
	ours, ucx      string        // binaries
	args           []string      // as given
}

// busy is a load average above which the figures are unreliable: the tools need two cores.
const busy = 0.5

const (
	quickPairs  = 3
	quickLength = 300 * time.Millisecond
)

func parse(args []string, stderr io.Writer) (plan, error) {
	p := plan{args: args}
	f := flag.NewFlagSet("bench-ucx", flag.ContinueOnError)
	f.SetOutput(stderr)
	filter := f.String("t", "", "measure only tests that match this `regexp`, as \"tag_lat 8\"")
	quick := f.Bool("quick", false, "three short pairs, nothing stored: a look, not a result")
	f.IntVar(&p.pairs, "n", 11, "`pairs` of runs")
	f.DurationVar(&p.length, "time", time.Second, "`duration` of each run")
	f.IntVar(&p.client, "client-cpu", 0, "`core` of the client")
	f.IntVar(&p.server, "server-cpu", 1, "`core` of the server")
	f.StringVar(&p.dir, "o", "docs/perf", "`directory` that the results are stored in; empty: not stored")
	f.StringVar(&p.ours, "ours", "bin/ucx_perftest", "goucx's `binary`")
	f.StringVar(&p.ucx, "ucx", "ucx_perftest", "UCX's `binary`")
	if err := f.Parse(args); err != nil {
		return p, err
	}
	if *quick {
		p.quick(f)
	}
	var err error
	p.filter, err = regexp.Compile(*filter)
	switch {
	case err != nil:
		return p, fmt.Errorf("-t: %w", err)
	case f.NArg() > 0:
		return p, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case p.pairs < 1:
		return p, fmt.Errorf("-n %d: at least one pair", p.pairs)
	case p.server == p.client:
		return p, fmt.Errorf("server and client both on core %d: they need one each", p.server)
	case p.length < 10*time.Millisecond || p.length > time.Minute:
		return p, fmt.Errorf("-time %v: from 10ms to 1m", p.length)
	}
	return p, nil
}

// quick sets the short defaults for options that the command line does not set.
func (p *plan) quick(f *flag.FlagSet) {
	given := map[string]bool{}
	f.Visit(func(g *flag.Flag) { given[g.Name] = true })
	if !given["n"] {
		p.pairs = quickPairs
	}
	if !given["time"] {
		p.length = quickLength
	}
	if !given["o"] {
		p.dir = ""
	}
}

// run measures, prints the table to stdout and stores it. The error lists what could not be
// measured and which musts do not hold.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p, err := parse(args, stderr)
	if err != nil {
		return err
	}
	rows := p.choose(allRows)
	if len(rows) == 0 {
		return fmt.Errorf("-t %v matches no test", p.filter)
	}
	machine, err := describe(ctx, p)
	if err != nil {
		return err
	}
	if machine.load > busy {
		fmt.Fprintf(stderr, "this machine is busy (load %g): the figures will be noisy\n", machine.load)
	}
	if _, err := measureHop(p.client, p.server); err != nil {
		return fmt.Errorf("measure a hop between the cores: %w", err)
	}
	s := session{plan: p, log: stderr, measure: p.measure, hop: func() float64 {
		hop, err := measureHop(p.client, p.server)
		if err != nil {
			fmt.Fprintln(stderr, "measure a hop between the cores:", err)
		}
		return hop
	}}
	results := s.all(ctx, rows)
	doc := document{machine: machine, plan: p, results: results}
	if _, err := io.WriteString(stdout, doc.markdown()); err != nil {
		return err
	}
	if p.dir != "" && ctx.Err() == nil {
		if err := doc.store(stderr); err != nil {
			return err
		}
	}
	return errors.Join(ctx.Err(), verdict(results))
}

// choose returns the rows whose title matches the filter.
func (p plan) choose(rows []row) []row {
	var out []row
	for _, r := range rows {
		if p.filter.MatchString(r.title()) {
			out = append(out, r)
		}
	}
	return out
}
