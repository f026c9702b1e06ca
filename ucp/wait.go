package ucp

import (
	"context"
	"fmt"
	"runtime"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
)

// When a waiting loop looks beyond its worker, in passes.
const (
	ctxPasses   = 64   // look at the context
	clockPasses = 256  // idle, look at the clock
	spinPasses  = 4096 // idle, without an end of spinning: offer the processor to others
	yieldPasses = 1024 // and every so many after that
)

// pause is the state of a loop that waits: 16 bytes, cleared by one store.
type pause struct {
	n     uint32 // passes since the last slow look
	idle  uint32 // passes since something was done
	did   uint32 // things done since the last slow look
	since uint32 // when idling began, about us; 0: not looked at; from spunOut on: see there
}

// From spunOut to spunOut+maxFruitless: the time for spinning is over, others had
// their turn on the processor, and so many sleeps have brought nothing.
const spunOut = 1

// after follows each pass that did n things, in a loop that waits for operation id;
// 0: for none. An error ends the loop.
// hot: BenchmarkTagPair
//
//gcassert:inline
func (p *pause) after(ctx context.Context, w *Worker, n int, id uint64) error {
	p.n++
	p.did += uint32(n)
	if p.n < w.looks {
		return nil
	}
	return p.slow(ctx, w, id)
}

// slow looks at the context, and sleeps where the time for spinning is over. The
// pass before may have ended the operation, also one that counts as idle: then
// nothing more may come, and slow does not sleep.
//
//go:noinline
func (p *pause) slow(ctx context.Context, w *Worker, id uint64) error {
	sleepy, err := p.look(ctx, w)
	if sleepy && (id == 0 || w.slab.live(id)) {
		w.sleep(ctx, p)
	}
	return err
}

// look reports whether it is time to sleep, or that ctx has ended.
func (p *pause) look(ctx context.Context, w *Worker) (sleepy bool, err error) {
	p.n = 0
	if ctx.Err() != nil { // Cause takes a lock
		return false, context.Cause(ctx)
	}
	return p.count() >= w.sleeper.after && p.spun(w), nil
}

// count adds the passes since the last call and gives those in which nothing was
// done.
func (p *pause) count() uint32 {
	p.idle += ctxPasses
	if p.did != 0 {
		*p = pause{}
	}
	return p.idle
}

// spun reports whether it is time to sleep.
func (p *pause) spun(w *Worker) bool {
	if p.since-spunOut <= maxFruitless {
		return true
	}
	if w.sleeper.spin < 0 {
		if p.idle >= spinPasses && p.idle%yieldPasses == 0 {
			cpu.Yield()
		}
		return false
	}
	if w.sleeper.spin == 0 { // arming looks once more
		p.since = spunOut
		runtime.Gosched()
		return true
	}
	if p.idle%clockPasses != 0 {
		return false
	}
	now := uint32(ucs.Now() >> 10)
	if p.since == 0 {
		p.since = max(now, spunOut+maxFruitless+1)
	}
	if ucs.Time(int32(now-p.since))<<10 < w.sleeper.spin {
		return false
	}
	// Goroutines that wait for this processor go first: who sleeps in poll keeps
	// it until the scheduler takes it away. One more round looks at what they did.
	p.since = spunOut
	runtime.Gosched()
	return false
}

// Run progresses the worker until ctx ends or the worker is closed, and gives
// ctx's cause or ErrClosed. When idle it sleeps.
func (w *Worker) Run(ctx context.Context) error {
	if w.t.locked {
		_, _, err := w.waitShared(ctx, 0, false)
		return err
	}
	var p pause
	for {
		if w.closed.Load() {
			return ErrClosed
		}
		if err := p.after(ctx, w, w.Progress(), 0); err != nil {
			return err
		}
	}
}

// WaitUntil progresses the worker until cond, which it calls after each pass on
// this goroutine, is true. It returns ctx's cause if that ends first, ErrClosed
// if the worker is closed. cond may depend on memory that a peer writes; when
// idle, WaitUntil naps for at most 50 us at a time, and goes on looking.
func (w *Worker) WaitUntil(ctx context.Context, cond func() bool) error {
	if err := w.mayLoop(); err != nil {
		return err
	}
	var p pause
	for !cond() {
		if w.closed.Load() {
			return ErrClosed
		}
		p.n++
		p.did += uint32(w.Progress())
		if p.n < w.looks {
			continue
		}
		sleepy, err := p.look(ctx, w)
		switch {
		case err != nil && cond(): // by this pass
			return nil
		case err != nil:
			return err
		case sleepy:
			w.nap()
		}
	}
	return nil
}

func (w *Worker) mayLoop() error {
	w.t.lock()
	defer w.t.unlock()
	return w.mayWait()
}

// waitBounded waits for r, at most CloseTimeout. It reports whether r has ended: err
// is its outcome then, else the reason why the wait stopped.
func (w *Worker) waitBounded(r Request) (ended bool, err error) {
	if r.Done() {
		return true, r.Err()
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.ctx.closeTimeout)
	defer cancel()
	if ended, err = r.waitSlow(ctx); ended {
		return true, err
	}
	if ctx.Err() != nil {
		err = ErrTimeout
	}
	return false, fmt.Errorf("close: %s: %w", r, err)
}

// among follows each pass over all of ws, which did n things.
func (p *pause) among(ws []*Worker, n int) {
	p.n++
	p.did += uint32(n)
	if p.n < ctxPasses {
		return
	}
	if p.n = 0; p.count() < spinPasses {
		return
	}
	if w := ws[0]; w.sleeper.set != nil {
		w.nap()
	} else {
		cpu.Yield()
	}
}
