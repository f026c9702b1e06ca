package ucp

import (
	"context"
	"fmt"
	"runtime"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
)

// Intervals at which a waiting loop looks beyond its worker, in passes.
const (
	ctxPasses   = 64   // check the context
	clockPasses = 256  // while idle, read the clock
	spinPasses  = 4096 // while idle and spinning without end: first yield of the processor
	yieldPasses = 1024 // then a yield after each so many passes
)

// waitLoop is the state of a waiting loop: 16 bytes, cleared by one store.
type waitLoop struct {
	n     uint32 // passes since the last slow look
	idle  uint32 // passes since the last item was handled
	did   uint32 // items handled since the last slow look
	since uint32 // start of the idle time in units of about 1 us; 0: not read yet; small values: see spinOver
}

// spinOver marks, in waitLoop.since, that the spin time is over and that other goroutines have
// had their turn on the processor. spinOver+n, for n up to maxSpurious, is the same after n
// consecutive spurious wake-ups.
const spinOver = 1

// after follows each pass of a loop that waits for operation id. n is the number of items
// handled. id is 0 if the loop waits for no operation. An error ends the loop.
//
//hot:bench BenchmarkTagPair
//gcassert:inline
func (p *waitLoop) after(ctx context.Context, w *thread, n int, id uint64) error {
	p.n++
	p.did += uint32(n)
	if p.n < w.ctxCheckPasses {
		return nil
	}
	return p.slow(ctx, w, id)
}

// slow checks the context, and sleeps if the spin time is over. The last pass may have
// completed the operation, even if it counts as idle. Then nothing more may arrive, so slow
// does not sleep.
//
//go:noinline
func (p *waitLoop) slow(ctx context.Context, w *thread, id uint64) error {
	sleepy, err := p.look(ctx, w)
	if sleepy && (id == 0 || w.slab.Live(id)) {
		w.sleep(ctx, p)
	}
	return err
}

// look reports whether it is time to sleep, or returns the cause if ctx has ended.
func (p *waitLoop) look(ctx context.Context, w *thread) (sleepy bool, err error) {
	p.n = 0
	if ctx.Err() != nil { // Cause takes a lock, so check Err first
		return false, context.Cause(ctx)
	}
	return p.count() >= w.sleeper.after && p.spinExpired(w), nil
}

// count adds the passes since the last call, and returns the number of idle passes.
func (p *waitLoop) count() uint32 {
	p.idle += ctxPasses
	if p.did != 0 {
		*p = waitLoop{}
	}
	return p.idle
}

// spinExpired reports whether it is time to sleep.
func (p *waitLoop) spinExpired(w *thread) bool {
	if p.since-spinOver <= maxSpurious {
		return true
	}
	if w.sleeper.spin < 0 {
		if p.idle >= spinPasses && p.idle%yieldPasses == 0 {
			cpu.Yield()
		}
		return false
	}
	if w.sleeper.spin == 0 { // arming looks at the ifaces once more
		p.since = spinOver
		runtime.Gosched()
		return true
	}
	if p.idle%clockPasses != 0 {
		return false
	}
	now := uint32(ucs.Now() >> 10)
	if p.since == 0 {
		p.since = max(now, spinOver+maxSpurious+1)
	}
	if ucs.Time(int32(now-p.since))<<10 < w.sleeper.spin {
		return false
	}
	// Goroutines that wait for this processor go first: a goroutine that sleeps in poll
	// keeps the processor until the scheduler takes it away. One more round of passes looks
	// at what they did.
	p.since = spinOver
	runtime.Gosched()
	return false
}

// Run progresses the worker until ctx ends or the worker is closed, and returns ctx's cause
// or ErrClosed. It sleeps when idle.
func (w *Worker) Run(ctx context.Context) error {
	if w.t.locked {
		_, _, err := w.t.waitShared(ctx, 0, false)
		return err
	}
	var p waitLoop
	for {
		if w.t.closed.Load() {
			return ErrClosed
		}
		if err := p.after(ctx, &w.t, w.t.progress(), 0); err != nil {
			return err
		}
	}
}

// WaitUntil progresses the worker until cond returns true. It calls cond after each pass on
// this goroutine. It returns ctx's cause if ctx ends first, and ErrClosed if the worker is
// closed. cond may depend on memory that a peer writes. When idle, WaitUntil sleeps for
// about 80 us at a time and calls cond again.
func (w *Worker) WaitUntil(ctx context.Context, cond func() bool) error {
	return w.t.waitUntil(ctx, cond)
}

func (w *thread) waitUntil(ctx context.Context, cond func() bool) error {
	if err := w.mayLoop(); err != nil {
		return err
	}
	var p waitLoop
	for !cond() {
		if w.closed.Load() {
			return ErrClosed
		}
		p.n++
		p.did += uint32(w.progress())
		if p.n < w.ctxCheckPasses {
			continue
		}
		sleepy, err := p.look(ctx, w)
		switch {
		case err != nil && cond(): // the last pass made it true
			return nil
		case err != nil:
			return err
		case sleepy:
			w.sleepBriefly()
		}
	}
	return nil
}

func (w *thread) mayLoop() error {
	w.lock()
	defer w.unlock()
	return w.mayWait()
}

// waitBounded waits for r, at most CloseTimeout. If ended is true, err is the result of r.
// Otherwise err is the reason why the wait stopped.
func (w *thread) waitBounded(r Request) (ended bool, err error) {
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

// among follows each pass over all of ws. n is the number of items handled.
func (p *waitLoop) among(ws []*Worker, n int) {
	p.n++
	p.did += uint32(n)
	if p.n < ctxPasses {
		return
	}
	if p.n = 0; p.count() < spinPasses {
		return
	}
	if w := ws[0]; w.t.sleeper.set != nil {
		w.t.sleepBriefly()
	} else {
		cpu.Yield()
	}
}
