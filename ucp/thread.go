package ucp

import (
	"github.com/goucx/goucx/ucp/internal/pool"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// thread is the part of a worker that one goroutine at a time uses: requests and lanes, and
// the components that complete, receive and wait. With ThreadMulti, owner.mu guards all its
// fields, but for those that say otherwise. No component refers to the thread.
type thread struct {
	// fastEps is eps, or empty if every call must take the lock. The bounds check of a
	// fast path then fails, and the call takes the slow path.
	fastEps        []epSlot
	lanes          []lane // by index; lane 0 is none and refuses everything
	locked         bool   // every call takes the worker's lock: ThreadMulti, or the worker is closed
	tagSlow        bool   // a tag receive takes the slow path: locked, or the context has no FeatureTag
	polling        polling
	ctxCheckPasses uint32 // number of passes after which a wait looks at its context and the time

	slab slab

	operations         *[request.NumKinds]operation
	eps                []epSlot
	epFree             uint32
	numEps             [numEpStates]int // endpoints in each state; of epFree without meaning
	cold               coldEps
	peers              wireup.Table
	laneOf             laneIndex
	laneFree           uint32
	numDraining        int // lanes in laneDraining
	fences             int // fences over several lanes in progress
	fenced             []uint32
	resuming           bool      // HandlePending or tryResumeLane is running
	unreportedRefusals int       // upper bound of the refused transfers that no flush has reported
	unreported         []uint64  // operations that complete when a failure is reported
	rxConns            []*rxConn // by rxConn.index; 0 is none
	freeRxConns        []uint32

	rndvThresh rndvThresh
	zcopyFrom  zcopyFrom
	maxCredits uint32            // send credits of each lane
	scratch    [scratchSize]byte // a short message that is being sent
	pool       pool.Pool         // memory of unexpected messages and of inline copies

	ctx     *Context
	parent  *thread     // of a Thread: that of its worker; nil: a worker's own
	publish publishLock // guards what the Threads of the worker read
	id      uct.UUID
	ifaces  []*workerIface
	locals  []wireup.LocalIface // ifaces as lane selection sees them
	refused []uct.Refusal
	address Address
	configs []string // endpoint configurations in use, by index in the log; empty without a log
	count   *stats.Set
	stats   stats.Group

	matching  matching
	am        amState
	callbacks callbacks
	emul      emulOps
	owner     progressOwner
	looks     lookStart

	show *display // nil: the worker publishes no live statistics
	life workerLife
}

// lock and unlock guard the worker with ThreadMulti. With other modes they do nothing.
func (w *thread) lock() {
	if w.locked {
		w.owner.lockShared()
	}
}

func (w *thread) unlock() {
	if w.locked {
		w.unlockShared()
	}
}

// unlockForCallback and relockAfterCallback enclose a callback of the program. With ThreadMulti the callback
// runs without the worker's lock, so that other goroutines may post. They cannot progress,
// because the caller holds the progress ownership. Pointers into the slab, the lanes and
// the rx connections are invalid after relockAfterCallback.
func (w *thread) unlockForCallback() {
	if w.am.multi || w.life.closed() {
		w.unlockShared()
	}
}

func (w *thread) relockAfterCallback() {
	if w.am.multi || w.life.closed() {
		w.owner.lockPass()
	}
}

// giveWay waits giveWayLooks pauses for goroutines that want to post. If none of them got
// the lock in that time, it yields the processor up to giveWayYields times.
const (
	giveWayLooks  = 256
	giveWayYields = 64
)

// lockShared takes the worker's lock for a post or a look. A goroutine that progresses in a
// loop holds the lock nearly all the time. So lockSlow counts the waiting posts in lockWaiters,
// and passes of progress let them go first.
func (o *progressOwner) lockShared() {
	if !o.mu.TryLock() {
		o.lockSlow()
	}
}

//go:noinline
func (o *progressOwner) lockSlow() {
	if debugThreads && o.ofThread {
		panic("ucp: two goroutines use a Thread at once; each needs a Thread of its own")
	}
	o.lockWaiters.Add(1)
	o.mu.Lock()
	o.granted.Add(1)
	o.lockWaiters.Add(-1)
}

// lockPass takes the worker's lock for a pass of progress.
func (o *progressOwner) lockPass() {
	if o.lockWaiters.Load() > 0 {
		o.giveWay()
	}
	if debugThreads {
		o.lockShared() // which refuses a second goroutine
		return
	}
	o.mu.Lock()
}

// setOfThread makes the lock that of a Thread.
func (o *progressOwner) setOfThread() { o.ofThread = true }

// giveWay lets goroutines that wait for the lock to post go first. If there are more
// goroutines or threads than processors, a waiting one may not run. It then gets the lock
// only if this pass yields its processor.
//
//go:noinline
func (o *progressOwner) giveWay() {
	granted := o.granted.Load()
	for k := 0; o.lockWaiters.Load() > 0; k++ {
		switch {
		case k < giveWayLooks:
			cpu.Pause()
		case k < giveWayLooks+giveWayYields && o.granted.Load() == granted:
			cpu.Yield()
		default:
			return
		}
	}
}

// unlockShared releases the lock and wakes the goroutines whose operations completed.
func (w *thread) unlockShared() {
	b := &w.owner
	if b.toWake == nil && b.state != ownerSleeps {
		w.owner.mu.Unlock()
		return
	}
	w.unlockSlow()
}

//go:noinline
func (w *thread) unlockSlow() {
	b := &w.owner
	// The goroutine in poll runs the callbacks that became due without progress.
	signal := b.state == ownerSleeps && (b.mustWake || w.callbacks.pending())
	x := b.toWake
	b.toWake, b.toWakeTail = nil, &b.toWake
	w.owner.mu.Unlock()
	if signal {
		w.polling.signal()
	}
	for x != nil {
		next := x.wakeNext
		x.wakeNext = nil
		x.wake(w)
		x = next
	}
}
