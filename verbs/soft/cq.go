package soft

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// cq is a completion queue: a ring that starts empty and doubles when full. Engines
// push at its tail, programs poll at its head.
type cq struct {
	d      *device
	pd     *pd          // the parent domain that it was created in; nil: none
	ch     *compChannel // nil: none
	cookie uint64
	// single: at most one goroutine polls at a time. Pushes lock nevertheless. Any
	// goroutine that runs the device may push, also one that polls another queue.
	single        bool
	ignoreOverrun bool // drop completions on overrun and stay usable

	// Poll runs the engines of the queue pairs that use the queue. useEngine and releaseEngine
	// change both.
	engine  atomic.Pointer[engine]    // the only one; without queue pairs that of the domain; nil: there are several
	engines atomic.Pointer[[]*engine] // the several

	// Guarded by device.mu.
	qps   objects.Uses // the ends of queue pairs
	uses  []engineUse  // how many of them each engine has
	index int          // index in device.cqs
	event chanLink     // guarded by ch.mu

	_     ucs.Pad
	tail  cursor
	ring  atomic.Pointer[[]verbs.WC] // length a power of two; replaced under tail
	depth uint64                     // guarded by tail
	// moderation delays events; nil: there was none yet. Guarded by tail.
	moderation *moderation
	armed      atomic.Uint32 // armedNot or the completions that raise an event; changed under tail
	state      atomic.Uint32 // cqUsable, cqOverrun or cqClosed
	tailLocks  uint64        // locks of tail by push; changed under tail

	_         ucs.Pad
	head      cursor
	headLocks uint64   // locks of head by pop; changed under head
	_         [64]byte // the next object in memory is of another thread
}

// engineUse is how many ends of an engine's queue pairs use a completion queue.
type engineUse struct {
	e *engine
	n int
}

// Values of cq.state. Close makes any queue cqClosed.
const (
	cqUsable  = iota
	cqOverrun // a completion was lost: neither push nor Poll works
	cqClosed
)

// Values of cq.armed.
const (
	armedNot = iota
	armedSolicited
	armedAny
)

const minCQE = 8

// CreateCQ creates a completion queue.
func (d *device) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) {
	fail := func(err error) (verbs.CQ, error) { return nil, fmt.Errorf("create completion queue: %w", err) }
	err := objects.CheckDepth(&d.attr, c.Depth)
	if err != nil {
		return fail(err)
	}
	q := &cq{
		d: d, cookie: c.Cookie, ignoreOverrun: c.IgnoreOverrun, depth: uint64(c.Depth), single: c.SingleThreaded,
	}
	if q.ch, err = objects.OwnOrNil[*compChannel](d, "channel", c.Channel); err != nil {
		return fail(err)
	}
	if q.pd, err = objects.OwnOrNil[*pd](d, "domain", c.Domain); err != nil {
		return fail(err)
	}
	if q.pd != nil && !q.pd.IsParent() {
		return fail(fmt.Errorf("the domain is no parent domain: %w", ucs.ErrInvalid))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.ch != nil {
		if err := q.ch.queues.CheckOpen("channel"); err != nil {
			return fail(err)
		}
	}
	if q.pd == nil {
		err = d.open.Admit(objects.CQ, d.attr.MaxCQ)
	} else {
		err = q.pd.Admit(objects.CQ, d.attr.MaxCQ)
		q.single = q.single || q.pd.Single()
	}
	if err != nil {
		return fail(err)
	}
	if q.ch != nil {
		q.ch.queues.Add()
	}
	d.cqs.add(q)
	q.publishEngines()
	return q, nil
}

// Account returns the account of the queue pairs that use the queue.
func (c *cq) Account() *objects.Uses { return &c.qps }

// useEngine counts one more end of a queue pair of e that uses the queue. The caller holds
// device.mu.
func (c *cq) useEngine(e *engine) {
	i := slices.IndexFunc(c.uses, func(u engineUse) bool { return u.e == e })
	if i < 0 {
		i = len(c.uses)
		c.uses = append(c.uses, engineUse{e: e})
	}
	c.uses[i].n++
	c.publishEngines()
}

// releaseEngine undoes one useEngine.
func (c *cq) releaseEngine(e *engine) {
	i := slices.IndexFunc(c.uses, func(u engineUse) bool { return u.e == e })
	if c.uses[i].n--; c.uses[i].n == 0 {
		c.uses = slices.Delete(c.uses, i, i+1)
	}
	c.publishEngines()
}

// publishEngines sets the engines that Poll runs. The caller holds device.mu.
func (c *cq) publishEngines() {
	switch len(c.uses) {
	case 0:
		c.engine.Store(c.d.engineFor(c.pd))
	case 1:
		c.engine.Store(c.uses[0].e)
	default:
		var all []*engine
		for _, u := range c.uses {
			all = append(all, u.e)
		}
		c.engines.Store(&all) // first: a nil engine leads to it
		c.engine.Store(nil)
	}
}

func (c *cq) indexPtr() *int { return &c.index }

// empty reports whether the ring is empty. The owner of a queue pair sees all
// completions that were pushed for it.
func (c *cq) empty() bool { return c.head.pos() == c.tail.pos() }

// push adds a completion. solicited: the peer requested an event. It returns false if
// the queue is unusable.
//
// Concurrency: any goroutine that owns the queue pair.
//
//hot:bench BenchmarkPushPoll
func (c *cq) push(w *verbs.WC, solicited bool) bool {
	t := c.tail.lock()
	if c.state.Load() != cqUsable || t-c.head.pos() >= c.capacity() && !c.grow(t) {
		// An overrun drops the completion. Unless the queue ignores overruns it becomes
		// unusable, and the first overrun raises EventCQErr.
		raiseErr := !c.ignoreOverrun && c.state.CompareAndSwap(cqUsable, cqOverrun)
		c.tail.publish(t)
		if raiseErr {
			c.d.raise(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: c})
		}
		return c.state.Load() == cqUsable
	}
	ring := *c.ring.Load()
	ring[t&uint64(len(ring)-1)] = *w
	notify, start := false, ucs.Time(0)
	if a := c.armed.Load(); a != armedNot && (a == armedAny || solicited || w.Status != verbs.WCSuccess) {
		if notify = c.moderation == nil; !notify {
			notify, start = c.moderation.delay(c.d)
		}
		if notify {
			c.armed.Store(armedNot)
		}
	}
	count(&c.tailLocks, 1)
	c.tail.publish(t + 1)
	if notify {
		c.ch.post(c)
	}
	if start != 0 {
		c.d.own.setEventTimer(c, start)
	}
	return true
}

// capacity returns how many completions fit in the ring.
func (c *cq) capacity() uint64 {
	if p := c.ring.Load(); p != nil {
		return min(uint64(len(*p)), c.depth)
	}
	return 0
}

// grow doubles the ring. It returns false if the queue has its full depth. The caller
// holds the tail.
//
// Pollers may run concurrently, with either ring. All completions that they have not
// consumed are in both rings, and nothing writes the old one any more.
func (c *cq) grow(t uint64) bool {
	h := c.head.pos()
	if t-h >= c.depth {
		return false
	}
	var old []verbs.WC
	if p := c.ring.Load(); p != nil {
		old = *p
	}
	if t-h < uint64(len(old)) {
		return true // a poller has made room
	}
	ring := make([]verbs.WC, max(minCQE, 2*len(old)))
	for i := h; i != t; i++ {
		ring[i&uint64(len(ring)-1)] = old[i&uint64(len(old)-1)]
	}
	c.ring.Store(&ring)
	return true
}

// Poll returns completions in wcs. If the ring is empty, it runs the engines of the queue pairs
// that use the queue. They may write completions directly to wcs. An empty wcs only runs them.
//
//hot:bench BenchmarkPushPoll
func (c *cq) Poll(wcs []verbs.WC) int {
	if n := c.pop(wcs); n != 0 {
		return n
	}
	var n int
	if e := c.engine.Load(); e != nil {
		n = e.progressInto(c, wcs)
	} else {
		n = c.progressAll(wcs)
	}
	if n < len(wcs) && !c.empty() {
		n += max(c.pop(wcs[n:]), 0)
	}
	return n
}

// progressAll runs several engines.
//
//go:noinline
func (c *cq) progressAll(wcs []verbs.WC) (n int) {
	for _, e := range *c.engines.Load() {
		n += e.progressInto(c, wcs[n:])
	}
	return n
}

// pop copies completions from the ring to wcs. It returns their number, or -1 if the
// queue is unusable.
func (c *cq) pop(wcs []verbs.WC) int {
	if c.state.Load() != cqUsable {
		return -1
	}
	if c.empty() {
		return 0
	}
	h := c.head.acquire(c.single)
	n := min(c.tail.pos()-h, uint64(len(wcs)))
	if n > 0 { // another poller may have been faster
		ring := *c.ring.Load()
		for i := range n {
			wcs[i] = ring[(h+i)&uint64(len(ring)-1)]
		}
	}
	if !c.single {
		count(&c.headLocks, 1)
	}
	c.head.publish(h + n)
	return int(n)
}

// purge removes the completions of a destroyed queue pair.
func (c *cq) purge(qpn verbs.QPN) {
	t := c.tail.lock()
	h := c.head.acquire(c.single)
	to := h
	if h != t {
		ring := *c.ring.Load()
		mask := uint64(len(ring) - 1)
		for i := h; i != t; i++ {
			if w := &ring[i&mask]; w.QPN != qpn {
				ring[to&mask] = *w
				to++
			}
		}
	}
	c.head.publish(h)
	c.tail.publish(to)
}

// bytes returns the size of the ring in bytes.
func (c *cq) bytes() uint64 {
	if p := c.ring.Load(); p != nil {
		return uint64(len(*p)) * sizeOf[verbs.WC]()
	}
	return 0
}

// lockCount returns how often push and pop locked the queue.
func (c *cq) lockCount() uint64 {
	return atomic.LoadUint64(&c.tailLocks) + atomic.LoadUint64(&c.headLocks)
}

// Arm requests one event. A request for any completion includes solicited ones.
func (c *cq) Arm(solicitedOnly bool) ucs.Status {
	if c.ch == nil {
		return ucs.InvalidParam
	}
	want := uint32(armedAny)
	if solicitedOnly {
		want = armedSolicited
	}
	// The tail orders Arm against push. A push before Arm is visible to a later Poll; a
	// push after it sees armed.
	t := c.tail.lock()
	c.armed.Store(max(c.armed.Load(), want))
	c.tail.publish(t)
	if c.state.Load() != cqUsable {
		return ucs.Closed
	}
	return ucs.OK
}

// Resize changes the depth.
func (c *cq) Resize(depth int) error {
	if err := objects.CheckDepth(&c.d.attr, depth); err != nil {
		return fmt.Errorf("resize completion queue: %w", err)
	}
	t := c.tail.lock()
	held := t - c.head.pos()
	if uint64(depth) >= held {
		c.depth = uint64(depth)
	}
	c.tail.publish(t)
	if uint64(depth) < held {
		return fmt.Errorf("resize completion queue to %d: it holds %d completions: %w", depth, held, ucs.ErrInvalid)
	}
	return nil
}

// Close destroys the queue, after the program has acknowledged its events.
func (c *cq) Close() error {
	d := c.d
	d.mu.Lock()
	first, err := c.qps.Close("ends of queue pairs")
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("close completion queue: %w", err)
	}
	if !first {
		return nil
	}
	c.state.Store(cqClosed)

	d.discardEvents(c)
	d.own.stopModeration(c)
	if c.ch != nil {
		c.ch.remove(c)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.ch != nil {
		c.ch.queues.Release()
	}
	d.closedCounts.add(cntLocks, c.lockCount())
	d.closedCounts.add(cntCQLocks, c.lockCount())
	d.cqs.remove(c)
	if c.pd != nil {
		c.pd.Release(objects.CQ)
	} else {
		d.open.Release(objects.CQ)
	}
	return nil
}
