package ucp

import (
	"context"

	"github.com/goucx/goucx/ucs/cpu"
)

// When a waiting loop looks beyond its worker, in passes.
const (
	ctxPasses   = 64   // look at the context; a power of two
	spinPasses  = 4096 // idle before the processor is offered to others
	yieldPasses = 1024 // and every so many after that
)

// pause is the state of a loop that waits.
type pause struct {
	n    uint32 // passes
	idle uint32 // passes since something was done
	did  int    // things done since the last slow look
}

// after follows each pass that did n things; an error ends the loop.
// hot: BenchmarkTagPair
//
//gcassert:inline
func (p *pause) after(ctx context.Context, n int) error {
	p.n++
	p.did += n
	if p.n&(ctxPasses-1) != 0 {
		return nil
	}
	return p.slow(ctx)
}

//go:noinline
func (p *pause) slow(ctx context.Context) error {
	p.idle += ctxPasses
	if p.did != 0 {
		p.idle = 0
	}
	p.did = 0
	if p.idle >= spinPasses && p.idle%yieldPasses == 0 {
		cpu.Yield()
	}
	if ctx.Err() == nil { // Cause takes a lock
		return nil
	}
	return context.Cause(ctx)
}

// Run progresses the worker until ctx ends or the worker is closed, and gives
// ctx's cause or ErrClosed.
func (w *Worker) Run(ctx context.Context) error {
	return w.WaitUntil(ctx, func() bool { return false })
}

// WaitUntil progresses the worker until cond, which it calls after each pass on
// this goroutine, is true. It gives ctx's cause where that ends first, ErrClosed
// where the worker is closed.
func (w *Worker) WaitUntil(ctx context.Context, cond func() bool) error {
	w.t.lock()
	err := w.mayWait()
	w.t.unlock()
	if err != nil {
		return err
	}
	var p pause
	for !cond() {
		if w.closed.Load() {
			return ErrClosed
		}
		if err := p.after(ctx, w.Progress()); err != nil {
			return err
		}
	}
	return nil
}
