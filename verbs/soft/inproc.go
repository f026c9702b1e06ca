package soft

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Switch connects the in-process devices of one program.
//
// Concurrency: all methods from any goroutine.
type Switch struct {
	mu      sync.Mutex
	byGID   map[verbs.GID]*device
	devices atomic.Pointer[[]*device] // by device.index; nil where one was closed
	mail    mail
}

// NewSwitch makes a switch without devices.
func NewSwitch() *Switch { return &Switch{byGID: make(map[verbs.GID]*device)} }

// attach connects d.
func (s *Switch) attach(d *device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byGID[d.gid] = d
	var all []*device
	if p := s.devices.Load(); p != nil {
		all = append(all, *p...)
	}
	d.index = uint32(len(all))
	for i, o := range all {
		if o == nil {
			d.index = uint32(i)
			all[i] = d
			break
		}
	}
	if int(d.index) == len(all) {
		all = append(all, d)
	}
	s.devices.Store(&all)
}

// detach takes d out; packets that are on their way to it are lost.
func (s *Switch) detach(d *device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byGID, d.gid)
	all := append([]*device(nil), *s.devices.Load()...)
	all[d.index] = nil
	s.devices.Store(&all)
}

// lookup gives the device with that GID.
func (s *Switch) lookup(g verbs.GID) (*device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.byGID[g]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("no device in this process has GID %v: %w", g.Addr(), ucs.ErrUnreachable)
}

func (s *Switch) device(i uint32) *device {
	if p := s.devices.Load(); int(i) < len(*p) {
		return (*p)[i]
	}
	return nil
}

// sendInproc hands over what the queue pair has to send; true: the peer's inbox
// is full, and more is left. An acknowledgement that is due rides in the cell of a
// request, if one goes out now.
func (q *qp) sendInproc() bool {
	n, more := q.fillPeer()
	if n > 0 {
		q.to.peer.wake()
	}
	return more
}

// fillPeer is sendInproc, and gives the number of packets; who calls it wakes the
// peer.
func (q *qp) fillPeer() (n int, more bool) {
	b := q.to.peer.in
	p := &q.out
	for ; ; n++ {
		if b.full() {
			return n, true
		}
		ride := q.rsp.mayRide() && q.nextRequest(p)
		if !ride && !q.nextReply(p) && !q.nextRequest(p) {
			return n, false
		}
		c, seq := b.claim()
		if c == nil { // others were faster: the packet is lost
			q.count(cntDroppedInbox, 1)
			return n, true
		}
		q.extend(p)
		c.fill(p, q.d.index)
		if ride {
			c.ride(q.acknowledged())
		}
		storeRelease32(&c.seq, seq)
	}
}

// waitsForRoom reports whether a packet is to go out now, and the peer's inbox is
// full. That counts as a packet on its way: a peer that takes nothing out any more
// fails the queue pair after the configured time, however many fill its inbox.
func (q *qp) waitsForRoom() bool {
	r := &q.req
	if q.d.kind != overInproc || q.to.peer == nil || r.tx == q.sq.end() {
		return false
	}
	moving := q.stateNow() == verbs.StateRTS || r.sent > 0 || q.sq.at(r.tx).began
	return moving && q.to.peer.in.full()
}

// peerTakes reports whether the peer has taken packets out of its inbox since the
// last call.
func (q *qp) peerTakes() bool {
	h := q.to.peer.in.taken()
	moved := h != q.peerHead
	q.peerHead = h
	return moved
}

// drain acts on the packets in the inbox. The caller has the receive token.
//
// hot: BenchmarkPingPong.
func (d *device) drain(now ucs.Time) int {
	var q *qp
	g := d.in.first.Load()
	h := g.head.Load()
	n := 0
	for n < maxDrain {
		c := g.at(h)
		if c.seq.Load() != h+1 {
			if g = d.in.onward(g, h); g == nil {
				break
			}
			h = 0
			continue
		}
		if q == nil || q.num != c.dest {
			if q != nil {
				q.leave()
			}
			if q = d.qps.find(c.dest); q != nil {
				if !q.take() {
					return n // its owner is at work: next time
				}
				q.polled = true
			}
		}
		if q == nil {
			d.counts.add(cntDroppedQPN, 1)
		} else if q.peerIs(c.from) && !q.arriveShort(c, now) {
			d.arriveCell(q, c, now)
		}
		if c.flags&cellBody != 0 {
			c.drop()
		}
		h++
		n++
		storeRelease32(&g.head, h)
	}
	if q != nil {
		q.leave()
	}
	return n
}

// peerIs reports whether a packet of that device may be for q; it is counted, if
// not.
func (q *qp) peerIs(from uint32) bool {
	if q.typ == verbs.RC && (q.to.peer == nil || q.to.peer.index != from) {
		q.d.counts.add(cntDroppedSource, 1)
		return false
	}
	return true
}

// arriveCell acts on what a cell brings q, which the caller owns.
func (d *device) arriveCell(q *qp, c *cell, now ucs.Time) {
	p := &d.come
	if c.flags&cellAck != 0 {
		c.ridden(p)
		q.arrive(p, now)
	}
	if !c.read(p, d.conf.Switch) {
		d.counts.add(cntDroppedShort, 1)
		return
	}
	if q.typ == verbs.UD {
		d.fromInproc(p, c.from)
	}
	if p.more > 0 {
		q.arriveTrain(p, now)
		return
	}
	q.arrive(p, now)
}

// fromInproc says who sent a datagram.
func (d *device) fromInproc(p *packet, from uint32) {
	p.sgid, p.slid = verbs.GID{}, 0
	if o := d.conf.Switch.device(from); o != nil {
		p.sgid, p.slid = o.gid, o.lid
	}
}
