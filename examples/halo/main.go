// Command halo solves a heat equation on a ring. Each process holds some rows of a grid. Before
// each step it writes its outer rows into its neighbors' memory; the neighbors take no action. At
// the end every value is checked against the same computation by one process.
//
//	dir=$(mktemp -d)
//	for rank in 0 1 2; do JOB_RANK=$rank JOB_SIZE=3 JOB_DIR=$dir go run ./examples/halo & done; wait
//
// With --threads n each process writes its rows by n goroutines, each through a ucp.Thread of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/spf13/pflag"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/examples/bootstrap"
	"github.com/goucx/goucx/ucp"
)

func main() {
	rows := pflag.Int("rows", 16, "rows of each process")
	steps := pflag.Int("steps", 200, "time steps")
	threads := pflag.Int("threads", 0, "goroutines of each process, each of which writes and computes its columns; 0: the main goroutine does")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *rows, *steps, *threads); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, rows, steps, threads int) (err error) {
	job, err := bootstrap.Join(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	x, err := goucx.Open(ucp.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	w, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	if err != nil {
		return err
	}
	s, err := newStrip(ctx, job, x, w, rows)
	if err != nil {
		return err
	}
	if threads > 0 {
		err = s.solveByThreads(ctx, steps, threads)
	} else {
		err = s.solve(ctx, steps)
	}
	if err != nil {
		return fmt.Errorf("rank %d of %d: %w", job.Rank, job.Size, err)
	}
	if err := s.check(steps); err != nil {
		return fmt.Errorf("rank %d of %d: %w", job.Rank, job.Size, err)
	}
	fmt.Printf("rank %d of %d: %d steps on %d rows, all right\n", job.Rank, job.Size, steps, rows)
	return s.leave(ctx)
}
