package shm

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/transports/internal/lull"
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/transports/internal/pending"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// ep is a connection: a pair of rings with one peer, and the send handle on it
// once an endpoint was opened. It owns its mapping until both sides have said
// that they are done, or one is gone.
type ep struct {
	// Put, get and atomics need no connection, only a key.
	mapped.RMA

	// Sending.
	tx     ring.Producer
	armed  *uint32 // the peer's armed word; alwaysArmed while each send must look closer
	status uct.Status
	need   int // bytes that the last refused message wanted
	resID  uct.AMID
	resHdr uint64
	resLen int // of the open reservation; -1: none
	salt   uint64
	sends  machine.PairID // what tx is in

	// Receiving.
	_   ucs.Pad
	rx  ring.Consumer
	f   *iface
	hit uint32 // pass in which a message came last

	slot    int
	watched bool
	source  uint32
	reads   machine.PairID // what rx is in

	// Connection.
	m         machine.Machine
	pairs     []*pair
	spare     *pair            // for the machine's next Make
	later     []machine.Action // wait for the open reservation to end
	refused   machine.PairID   // an offer that could not be sent
	merged    uint64           // of iface.merged
	peer      ifaceName
	initiated bool
	separate  bool // does not cross with what the peer initiates; no endpoint takes it where the peer made it
	counted   bool // among iface.accepted
	opened    bool // an endpoint is open on it
	broken    bool // its socket is, what it said last is to be read
	over      bool // the peer is gone and nobody minds
	heard     bool // a message, in a pair that was left
	heardBye  bool
	heardAll  bool // and it hangs up
	hungUp    bool
	fenced    bool // this side must put the barrier between send and armed word
	dead      error
	reported  bool
	parted    bool // the end of what the peer sends was reported
	released  bool
	waits     bool // among iface.waiting
	rechecks  bool // among iface.recheck
	chilled   uint32
	maxBulk   int // longest message that every pair takes

	wants  bool     // among iface.wanting
	full   uint32   // refusals for want of room since
	fullAt ucs.Time // this time
	paused ucs.Time // no offers before
	lull.Activity

	behind *ep // not dialled yet, and to be dialled first
	pend   pending.Queue

	sock      *shmem.Conn
	side      *shmem.Conn // by which the peer said hello while ours stands
	pidfd     int
	peerInbox *inbox
	peerSlot  int
	peerEvent *shmem.WakeWriter
}

// alwaysArmed stands for the peer's armed word where every send must take the
// slow half of notify.
var alwaysArmed uint32 = 1

var (
	errHungUp       = fmt.Errorf("%w: it hung up without closing (killed or crashed)", ucs.ErrPeerFailed)
	errDisconnected = failErr("this side ended the connection")
	// errOrderly is told as no error.
	errOrderly = fmt.Errorf("%w: it closed its worker", ucs.ErrPeerFailed)
)

// failErr wraps ErrPeerFailed around what was wrong.
func failErr(what string) error { return fmt.Errorf("%w: %s", ucs.ErrPeerFailed, what) }

// notify is taken when the peer does not watch this ring, sleeps, or is not
// known yet.
//
//go:noinline
func (e *ep) notify() {
	if e.peerInbox == nil {
		e.greet()
		if e.peerInbox == nil {
			return // it looks at the ring right after it answers
		}
	}
	e.hint()
}

// hint tells the peer of what was sent, where it does not look at the ring by
// itself, and wakes it.
func (e *ep) hint() {
	if e.peerInbox == nil {
		return
	}
	if e.fenced {
		e.Barrier()
	}
	if !e.tx.Watched() {
		e.f.stats.Inc(statHinted)
		atomic.StoreUint64(&e.peerInbox.heads[e.peerSlot], e.tx.Head()^e.salt)
	}
	e.wake()
}

// wake ends the peer's sleep. The signal comes before the armed word is lowered:
// a process stopped between the two must not leave the sleeper behind with a word
// by which nobody else wakes it.
func (e *ep) wake() {
	if e.peerInbox == nil {
		return
	}
	n := atomic.LoadUint32(e.peerInbox.armed)
	if n == 0 {
		return
	}
	e.f.stats.Inc(statWoken)
	if err := e.peerEvent.Signal(); err != nil {
		e.f.failLater(e, fmt.Errorf("wake peer: %w", err))
		return
	}
	atomic.CompareAndSwapUint32(e.peerInbox.armed, n, 0) // else it has slept anew since
}

// ready says whether a message may be sent, looking at the ring again if need be.
func (e *ep) ready() uct.Status {
	if e.status != ucs.OK {
		return e.status
	}
	if e.tx.Room() {
		return ucs.OK
	}
	if s := e.refresh(); s != ucs.OK {
		return s
	}
	if !e.tx.Room() {
		return e.noRoom(0)
	}
	return ucs.OK
}

// refresh reads how far the peer came in the ring.
func (e *ep) refresh() uct.Status {
	if e.tx.Refresh() {
		return ucs.OK
	}
	e.f.stats.Inc(statGarbage)
	e.f.failLater(e, failErr("it wrote an impossible ring position"))
	return ucs.PeerFailed
}

// Flush ends at once: what was accepted lies in memory that the peer maps.
func (e *ep) Flush(k uct.FlushKind, _ uct.Token) uct.Status {
	if e.status != ucs.OK {
		return e.status
	}
	if k == uct.FlushCancel {
		e.shut(ucs.Canceled)
		return ucs.OK
	}
	e.Barrier()
	return ucs.OK
}

// Fence orders stores to mapped memory.
func (e *ep) Fence() uct.Status {
	e.Barrier()
	return e.status
}

// Check answers from what is known and has the next Progress look again.
func (e *ep) Check(uct.Token) uct.Status {
	e.f.look()
	return e.status
}

// shut refuses all further operations with s.
func (e *ep) shut(s uct.Status) {
	e.status = s
	e.block(s)
}

// block makes operations answer s until unblock; active messages find out why
// in their slow path.
func (e *ep) block(s uct.Status) {
	e.tx.Block()
	e.SetGate(s)
}

func (e *ep) unblock() {
	e.tx.Unblock()
	e.SetGate(ucs.OK)
}

// Close gives the send handle up. The connection stays until the peer is done
// with its side; what was sent is still delivered.
func (e *ep) Close() {
	if !e.opened {
		return
	}
	e.opened = false
	if e.released {
		return
	}
	e.PendingPurge(func(uct.Token) {})
	e.resLen = -1
	e.catchUp()
	if e.status == ucs.OK {
		e.shut(ucs.Closed)
	}
	e.bye(kindBye)
	e.f.passedBy(e.peer)
	e.f.settleLater(e)
}

// bye tells the peer that nothing more comes, and with kindByeAll that this side
// hangs up. Where the peer has not been reached yet, dial tells it.
func (e *ep) bye(k kind) {
	if e.dead != nil {
		return
	}
	if fault.Enabled {
		fault.At(fault.Closing)
	}
	e.greet()
	e.step(machine.Event{Kind: machine.Close})
	if k == kindByeAll && e.sock != nil && !e.hungUp {
		_ = e.sock.Send(e.f.hello(k, e.slot).append(nil)) // it may be gone
	}
}

// done reports whether nobody needs the connection any more.
func (e *ep) done() bool {
	if e.opened {
		return false
	}
	return e.dead != nil || e.over || e.m.State() == machine.Done
}

// disconnect hangs up and stops watching the peer's process. The descriptors are
// taken out of the set first: a child between fork and exec holds them too, and
// their events would come for whoever has this slot next.
func (e *ep) disconnect() (err error) {
	if e.sock != nil {
		_ = e.f.epoll.Del(e.sock.FD()) // it may not be in
		err = e.sock.Close()
		e.sock = nil
	}
	if e.side != nil {
		err = errors.Join(err, e.side.Close())
		e.side = nil
	}
	if e.pidfd >= 0 {
		_ = e.f.epoll.Del(e.pidfd)
		shmem.CloseFDs(e.pidfd)
		e.pidfd = -1
	}
	return err
}

// release gives back all that the connection holds.
func (e *ep) release() error {
	e.released = true
	err := e.disconnect()
	e.sendNowhere()
	e.readNowhere()
	for _, p := range e.pairs {
		err = errors.Join(err, p.seg.Close())
	}
	if len(e.pairs) > 0 {
		e.f.mapped--
	}
	e.pairs, e.later = nil, nil
	if e.f.openings[e.peer] == e {
		delete(e.f.openings, e.peer)
	}
	if e.merged != 0 {
		delete(e.f.merged, e.merged)
	}
	if e.peerInbox != nil {
		e.armed = &alwaysArmed
		err = errors.Join(err, e.peerInbox.close(), e.peerEvent.Close())
		e.peerInbox, e.peerEvent = nil, nil
	}
	return err
}
