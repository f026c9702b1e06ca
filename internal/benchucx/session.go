package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// session executes a plan.
type session struct {
	plan    plan
	log     io.Writer
	measure func(context.Context, tool, []string) (figures, error)
	hop     func() float64 // between the cores, in ns; nil: not measured
}

// result is one row and variant with its pairs.
type result struct {
	row     row
	variant variant
	pairs   []pair // a pair per round
	err     error  // the reason why there are no more pairs
}

// figures returns a figure of each pair that the row is judged by.
func (r *result) figures(of func(pair) float64) []float64 {
	var out []float64
	for _, p := range comparable(r.pairs) {
		out = append(out, of(p))
	}
	return out
}

// ratios returns the ratios of the pairs that the row is judged by.
func (r *result) ratios() []float64 { return r.figures(pair.ratio) }

// work is the state of a row during the session.
type work struct {
	row
	results []*result // by variant
	counts  []int     // iterations of goucx by variant
	count   int       // iterations of UCX
	err     error
}

// all measures every row. It first determines the iterations that fill a run. It then measures
// round by round, so that a disturbance of some seconds affects few pairs of each row. There are
// at most twice as many rounds as pairs are asked for.
func (s *session) all(ctx context.Context, rows []row) []*result {
	works := make([]*work, len(rows))
	var results []*result
	for i, r := range rows {
		works[i] = newWork(r)
		results = append(results, works[i].results...)
		s.try(works[i], s.calibrate(ctx, works[i]))
	}
	for n := range 2 * s.plan.pairs {
		fmt.Fprintf(s.log, "round %d of %d to %d\n", n+1, s.plan.pairs, 2*s.plan.pairs)
		for _, w := range works {
			if w.err == nil && ctx.Err() == nil && w.wants(s.plan.pairs) {
				s.try(w, s.round(ctx, w))
			}
		}
	}
	return results
}

// wants reports whether the row lacks pairs: it gets more while the distance of the cores changed
// in some of them.
func (w *work) wants(pairs int) bool {
	return slices.ContainsFunc(w.results, func(r *result) bool { return len(unchanged(r.pairs)) < pairs })
}

func newWork(r row) *work {
	w := &work{row: r, counts: make([]int, len(r.variants))}
	for _, v := range r.variants {
		w.results = append(w.results, &result{row: r, variant: v})
	}
	return w
}

// try drops a row at its first error; the other rows continue.
func (s *session) try(w *work, err error) {
	if err == nil {
		return
	}
	w.err = err
	for _, r := range w.results {
		r.err = err
	}
	fmt.Fprintf(s.log, "%s: %v\n", w.title(), err)
}

// calibration returns the number of iterations of the calibration run; it is small for large
// messages.
func (r row) calibration() int { return max(200, 20000/(1+r.size/1024)) }

const maxIterations = 1 << 30

func (s *session) calibrate(ctx context.Context, w *work) error {
	var err error
	if w.count, err = s.count(ctx, s.plan.cucx(w.row), w.row, w.ucxArgs); err != nil {
		return err
	}
	for i, v := range w.variants {
		if w.counts[i], err = s.count(ctx, s.plan.goucx(w.row, v), w.row, func(n int) []string { return w.oursArgs(v, n) }); err != nil {
			return err
		}
	}
	return nil
}

// count returns the number of iterations that fill the time of a run. It repeats with more
// iterations until a run takes a good part of that time, because short runs are slow.
func (s *session) count(ctx context.Context, t tool, r row, args func(n int) []string) (int, error) {
	const enough = 10
	n := r.calibration()
	for {
		f, err := s.measure(ctx, t, args(n))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", t.name, err)
		}
		full := f.rate * s.plan.length.Seconds()
		if r.pingPong() {
			full /= 2
		}
		full = min(max(full, 100), maxIterations)
		if full <= enough*float64(n) {
			return int(full), nil
		}
		n = int(full) / enough * 2
	}
}

// round runs each variant of goucx, then UCX.
func (s *session) round(ctx context.Context, w *work) error {
	pairs := make([]pair, len(w.variants))
	before := s.distance()
	for i, v := range w.variants {
		f, err := s.measureRetry(ctx, s.plan.goucx(w.row, v), w.oursArgs(v, w.counts[i]))
		if err != nil {
			return err
		}
		after := s.distance()
		pairs[i].ours = sample{f.of(w.metric), before, after}
		before = after
	}
	f, err := s.measureRetry(ctx, s.plan.cucx(w.row), w.ucxArgs(w.count))
	if err != nil {
		return err
	}
	ucx := sample{w.ucxFigure(f), before, s.distance()}
	for i, r := range w.results {
		pairs[i].ucx = ucx
		r.pairs = append(r.pairs, pairs[i])
	}
	return nil
}

// distance measures a hop between the cores, in ns; 0: it is not measured.
func (s *session) distance() float64 {
	if s.hop == nil {
		return 0
	}
	return s.hop()
}

// measureRetry retries a failed run once: another process may have taken the port.
func (s *session) measureRetry(ctx context.Context, t tool, args []string) (figures, error) {
	f, first := s.measure(ctx, t, args)
	if first == nil || ctx.Err() != nil {
		return f, first
	}
	f, err := s.measure(ctx, t, args)
	if err != nil {
		return f, fmt.Errorf("%s: %w", t.name, errors.Join(first, err))
	}
	fmt.Fprintf(s.log, "%s: succeeded at the second try: %v\n", t.name, first)
	return f, nil
}

// verdict returns an error that lists the rows that were not measured and the musts that do not
// hold.
func verdict(results []*result) error {
	var errs []error
	for _, r := range results {
		name := strings.TrimSpace(r.row.title() + " " + r.variant.name())
		switch {
		case r.err != nil:
			errs = append(errs, fmt.Errorf("%s: not measured: %w", name, r.err))
		case len(r.pairs) == 0 || r.variant.must == 0:
		case !r.variant.holds(r.row.metric, median(r.ratios()), medianInterval(r.ratios())):
			errs = append(errs, fmt.Errorf("%s: its must does not hold", name))
		}
	}
	return errors.Join(errs...)
}
