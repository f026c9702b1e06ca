package ucp

import (
	"context"
	"fmt"
	"runtime"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/uct"
)

// Intervals at which a waiting loop looks beyond its worker, in passes.
const (
	ctxPasses   = 64   // check the context
	clockPasses = 256  // while idle, read the clock
	spinPasses  = 4096 // while idle and spinning without end: first yield of the processor
	yieldPasses = 1024 // then a yield after each so many passes
)

// nilContext is the panic of a wait that must wait and got a nil context. The goroutine holds
// neither the worker's lock nor the progress ownership.
const nilContext = "ucp: a wait needs a context, and got nil"

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
	if ctx == nil {
		panic(nilContext)
	}
	if ctx.Err() != nil { // Cause takes a lock, so check Err first
		return false, context.Cause(ctx)
	}
	return p.count() >= w.polling.sleeper.after && p.spinExpired(w), nil
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
	if w.polling.sleeper.spin < 0 {
		if p.idle >= spinPasses && p.idle%yieldPasses == 0 {
			cpu.Yield()
		}
		return false
	}
	if w.polling.sleeper.spin == 0 { // arming looks at the ifaces once more
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
	if ucs.Time(int32(now-p.since))<<10 < w.polling.sleeper.spin {
		return false
	}
	// Goroutines that wait for this processor go first: a goroutine that sleeps in poll
	// keeps the processor until the scheduler takes it away. One more round of passes looks
	// at what they did.
	p.since = spinOver
	runtime.Gosched()
	return false
}

// Run progresses the worker until ctx ends or the worker is closed, and returns
// context.Cause(ctx) or ErrClosed. It sleeps when idle. It panics for a nil ctx.
func (w *Worker) Run(ctx context.Context) error {
	if w.t.locked {
		w.t.owner.lockShared()
		_, _, err := Request{t: &w.t}.waitShared(ctx, false)
		return err
	}
	var p waitLoop
	for {
		if w.t.life.closed() {
			return ErrClosed
		}
		if ctx == nil {
			panic(nilContext)
		}
		if err := p.after(ctx, &w.t, w.t.progress(), 0); err != nil {
			return err
		}
	}
}

// WaitUntil progresses the worker until cond returns true. It calls cond after each pass on
// this goroutine. It returns context.Cause(ctx) if ctx ends first, and ErrClosed if the worker
// is closed. It panics for a nil ctx if it has to wait. cond may depend on memory that a peer writes. When idle, WaitUntil sleeps for
// about 80 us at a time and calls cond again.
func (w *Worker) WaitUntil(ctx context.Context, cond func() bool) error {
	return w.t.waitUntil(ctx, cond)
}

func (w *thread) waitUntil(ctx context.Context, cond func() bool) error {
	w.lock()
	err := w.mayWait()
	w.unlock()
	if err != nil {
		return err
	}
	var p waitLoop
	for !cond() {
		if w.life.closed() {
			return ErrClosed
		}
		if ctx == nil {
			panic(nilContext)
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
			w.polling.sleepBriefly(w.am.multi)
		}
	}
	return nil
}

// waitBounded waits for r, at most CloseTimeout. If ended is true, err is the result of r.
// Otherwise err is the reason why the wait stopped.
func (r Request) waitBounded() (ended bool, err error) {
	if r.Done() {
		return true, r.Err()
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.t.ctx.closeTimeout)
	defer cancel()
	if ended, err = r.waitSlow(ctx); ended {
		return true, err
	}
	if ctx.Err() != nil {
		err = ErrTimeout
	}
	return false, fmt.Errorf("close: %s: %w", r, err)
}

// ReportWaits implements uct.WaitReporter. It reports where this worker waits for a peer,
// so that the transport probes that the peer is alive:
//
//   - a lane with sends that the peer has not matched or requested, or with emulated operations without a reply;
//   - an rx connection with messages whose sender waits for a reply, with requested data, or with an incomplete message;
//   - the lane of an endpoint that a receive is tied to, or of all endpoints: it waits for the end of the connection.
func (wi *workerIface) ReportWaits(least uct.WaitKind, report func(uct.Endpoint, uint32, uct.WaitKind)) {
	w := wi.t
	lane := func(i uint32, waits uct.WaitKind) {
		if l := &w.lanes[i]; l.ep != nil && l.state != laneFailed && l.iface == uint32(wi.index) {
			report(l.transport(), 0, waits)
		}
	}
	for i := range w.lanes {
		if w.lanes[i].unacked.Head != 0 {
			lane(uint32(i), uct.WaitForReply)
		}
	}
	for i := range w.emul.ops {
		if o := &w.emul.ops[i]; o.live {
			lane(o.lane, uct.WaitForReply)
		}
	}
	for id, rx := range wi.rxConns {
		if rx.pendingReplies > 0 || rx.pendingFetches > 0 || rx.into != reasmNone {
			report(nil, id, uct.WaitForReply)
		}
	}
	toAll := false
	for i := 1; least <= uct.WaitForClose && i < len(w.slab.Slots); i++ {
		if s := &w.slab.Slots[i]; s.State == request.StateLive && s.Flags&request.FlagTied != 0 {
			lane(w.eps[s.EP].lane, uct.WaitForClose)
			toAll = toAll || s.EP == 0
		}
	}
	for k := 1; toAll && k < len(w.eps); k++ {
		lane(w.eps[k].lane, uct.WaitForClose)
	}
}
