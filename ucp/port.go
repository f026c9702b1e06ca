package ucp

import (
	"encoding/binary"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// port is a worker's context of one iface, and the uct.Handler of the iface's callbacks.
// The fields rest and inTurn belong to resumeUnattended; the worker's lock guards them.
type port struct {
	w       *Worker
	iface   uct.Iface
	info    uct.IfaceInfo
	domain  openDomain
	index   int
	state   portState
	sources map[uint32]*source
	last    *source            // the rx connection looked up last
	spares  []uct.Reusable // closed regions that can be registered again
	rest    time.Duration      // delay until the next turn of resumeUnattended
	inTurn  bool               // a turn of resumeUnattended is running
	careful int                // reasons to check each message's rx connection: each failed one, and an exceeded budget
}

// portState says which goroutine polls a port, and when.
type portState uint8

const (
	// portIdle: inactive. Each slow look (lookAround) progresses it.
	portIdle portState = iota
	// portArmed: inactive, armed, and not progressed since. Its EventFD becomes readable
	// when there is something to progress.
	portArmed
	// portPolled: in Worker.active. Each pass progresses the iface, which disarms it. So a
	// sleeper arms it again before each sleep, also after its last endpoint was closed.
	portPolled
)

func (p *port) name() string { return p.info.Transport + "/" + p.info.Device }

// HandleAM receives messages. It is the fast path of receiving: a batch of one
// message needs no loop.
// hot: BenchmarkTagPair
//
//go:nosplit
func (p *port) HandleAM(mem []byte, ds []uct.Desc) uint64 {
	if len(ds) == 1 && p.careful == 0 {
		d, w := &ds[0], p.w
		data := mem[d.Off:][:d.Len]
		if d.ID == amEager {
			w.count.Inc(cntReceived)
			w.arrive(d.Header, data)
			return 0
		}
		if d.ID == amUser {
			w.count.Inc(cntReceived)
			return keptBit(p.handleUserFast(d, data))
		}
	}
	return p.handleBatch(mem, ds)
}

// keptBit returns the result of HandleAM for a batch of one message.
func keptBit(kept bool) uint64 {
	if kept {
		return 1
	}
	return 0
}

// handleBatch is HandleAM for batches of several messages, for messages of the protocol,
// and while rx connections are checked (careful). It returns a bit for each message whose
// memory is kept.
//
//go:noinline
func (p *port) handleBatch(mem []byte, ds []uct.Desc) uint64 {
	w := p.w
	w.count.Add(cntReceived, uint64(len(ds)))
	kept := uint64(0)
	for i := range ds {
		d := &ds[i]
		data := mem[d.Off:][:d.Len]
		if d.ID == amEager && p.careful == 0 {
			w.arrive(d.Header, data)
			continue
		}
		if d.ID == amUser && p.careful == 0 {
			if p.handleUserFast(d, data) {
				kept |= 1 << i
			}
			continue
		}
		if p.handleOther(d, data) {
			kept |= 1 << i
		}
	}
	return kept
}

// HandleEvents completes operations that were InProgress.
func (p *port) HandleEvents(es []uct.Event) {
	w := p.w
	for i := range es {
		e := &es[i]
		k := w.slab.find(uint64(e.Token))
		if k == 0 || w.slab.slots[k].state != slotLive {
			continue
		}
		s := &w.slab.slots[k]
		if s.left > 1 || s.posting() {
			w.partEnded(k, e.Status)
			continue
		}
		s.left = 0
		if s.op == opFetch || s.op == opGetUint64 {
			s.tag = e.Value
			if s.op == opGetUint64 && s.aux&auxBounced != 0 {
				s.tag = binary.LittleEndian.Uint64(w.slab.bufs[k])
			}
		}
		st := e.Status
		if s.status != ucs.OK {
			st = s.status
		}
		if st == ucs.PeerFailed && w.awaitsReport(k, p) {
			continue
		}
		w.end(k, st)
	}
}

// HandlePending retries operations that wait on a lane's pending queue. If the lane is
// stalled it moves the rest of ts to the stalled endpoint. A turn of the async goroutine is
// offered only the first of the waiting operations. It moves none, since it would move them
// behind those that were posted later.
func (p *port) HandlePending(ts []uct.Token) int {
	p.w.resuming = true
	n := p.resume(ts)
	for !p.inTurn && n < len(ts) && p.w.requeueStalled(ts[n]) {
		n++
		n += p.resume(ts[n:])
	}
	p.w.resuming = false
	if p.w.lingering > 0 {
		p.w.endLingering()
	}
	return n
}

// resume retries the operations ts, in order, until one gets NoResource, and returns how
// many it retried. Control messages on an operation's lane are sent before it. A token
// whose operation has completed is skipped.
func (p *port) resume(ts []uct.Token) int {
	w := p.w
	for n, t := range ts {
		i := w.slab.find(uint64(t))
		if i == 0 || w.slab.slots[i].state != slotLive {
			continue // canceled in the meantime
		}
		if lane := w.slab.slots[i].lane; w.t.lanes[lane].urgent.head != 0 {
			if !w.sendUrgent(lane) {
				return n
			}
			if w.slab.find(uint64(t)) == 0 {
				continue // it was a control message itself
			}
		}
		switch st := w.slab.slots[i].op.info().resume(w, i); st {
		case ucs.NoResource:
			return n
		case ucs.InProgress:
			w.unwait(i)
		case ucs.Busy: // it moved to the end of the queue
		default:
			w.end(i, st)
		}
	}
	return len(ts)
}

// HandleFailure fails the operations and messages of a failed connection.
func (p *port) HandleFailure(f uct.Failure) {
	p.w.count.Inc(cntFailures)
	p.w.connectionFailed(p, f)
}
