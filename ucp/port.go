package ucp

import (
	"encoding/binary"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// port is an iface of a worker and the handler of its callbacks.
type port struct {
	w       *Worker
	iface   uct.Iface
	info    uct.IfaceInfo
	domain  openDomain
	index   int
	state   portState
	sources map[uint32]*source
	last    *source            // the source looked up last
	spares  []uct.Reregisterer // closed regions that serve again
	rest    time.Duration      // the async goroutine's: until the next turn of resumeUnattended
	inTurn  bool               // the async goroutine has a turn of resumeUnattended
	careful int                // reasons to look at each source: one is bad, or the budget is spent
}

// portState tells which goroutine polls a port.
type portState uint8

const (
	// portIdle: it is inactive. Each look around progresses it.
	portIdle portState = iota
	// portArmed: it is inactive, was armed, and has not been progressed since: its
	// EventFD becomes readable when there is something to progress.
	portArmed
	// portPolled: it is in Worker.active, and each pass progresses it, which disarms
	// it. So a sleeper arms it again each time, also when its last endpoint has gone.
	portPolled
)

func (p *port) name() string { return p.info.Transport + "/" + p.info.Device }

// HandleAM takes messages in: the hot half of receiving. One that comes alone
// needs no loop.
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
			return keptBit(p.user(d, data))
		}
	}
	return p.handleBatch(mem, ds)
}

// keptBit is the answer of HandleAM for a message that came alone.
func keptBit(kept bool) uint64 {
	if kept {
		return 1
	}
	return 0
}

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
			if p.user(d, data) {
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

// HandleEvents ends operations that were InProgress.
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

// HandlePending tries again what waits on a lane. Where the lane is halted it moves all
// of ts to the halted endpoint. A turn of the async goroutine passes only the first of
// what waits: it moves none, since the rest would then go before them.
func (p *port) HandlePending(ts []uct.Token) int {
	p.w.resuming = true
	n := p.resume(ts)
	for !p.inTurn && n < len(ts) && p.w.holdBack(ts[n]) {
		n++
		n += p.resume(ts[n:])
	}
	p.w.resuming = false
	if p.w.lingering > 0 {
		p.w.endLingering()
	}
	return n
}

func (p *port) resume(ts []uct.Token) int {
	w := p.w
	for n, t := range ts {
		i := w.slab.find(uint64(t))
		if i == 0 || w.slab.slots[i].state != slotLive {
			continue // withdrawn meanwhile
		}
		if lane := w.slab.slots[i].lane; w.t.lanes[lane].urgent.head != 0 {
			if !w.sendUrgent(lane) {
				return n
			}
			if w.slab.find(uint64(t)) == 0 {
				continue // it was urgent itself
			}
		}
		switch st := w.slab.slots[i].op.info().resume(w, i); st {
		case ucs.NoResource:
			return n
		case ucs.InProgress:
			w.unwait(i)
		case ucs.Busy: // it went to the end of the queue
		default:
			w.end(i, st)
		}
	}
	return len(ts)
}

// HandleFailure ends what a failed connection carried.
func (p *port) HandleFailure(f uct.Failure) {
	p.w.count.Inc(cntFailures)
	p.w.connectionFailed(p, f)
}
