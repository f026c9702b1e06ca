package soft

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Switch connects the in-process devices of a program.
//
// Concurrency: any goroutine may call all methods.
type Switch struct {
	mu          sync.Mutex
	byGID       map[verbs.GID]*device
	devices     atomic.Pointer[[]*device] // by device.index; nil for closed devices
	faultFabric polledFabric
}

// NewSwitch creates a Switch without devices.
func NewSwitch() *Switch { return &Switch{byGID: make(map[verbs.GID]*device)} }

// attach adds d.
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

// device returns the device with that index, or nil.
func (s *Switch) device(i uint32) *device {
	if p := s.devices.Load(); int(i) < len(*p) {
		return (*p)[i]
	}
	return nil
}

// inprocLink is the link between the in-process devices of a Switch. Packets are cells of
// the peer's inbox.
type inprocLink struct{ d *device }

func (l inprocLink) resolve(a *verbs.AHAttr) (route, error) {
	if a.DGID.Addr().IsMulticast() {
		return route{group: &a.DGID}, nil
	}
	s := l.d.conf.Switch
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.byGID[a.DGID]; d != nil {
		return route{peer: &d.own, index: d.index}, nil
	}
	return route{}, fmt.Errorf("no device in this process has GID %v: %w", a.DGID.Addr(), ucs.ErrUnreachable)
}

func (l inprocLink) receive(e *engine, now ucs.Time) int { return e.drain(now) }

func (l inprocLink) hasPackets() bool { return false } // they are in the inboxes of the engines

// close removes the device from the Switch. Packets on their way to it are lost.
func (l inprocLink) close() error {
	s, d := l.d.conf.Switch, l.d
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byGID, d.gid)
	all := slices.Clone(*s.devices.Load())
	all[d.index] = nil
	s.devices.Store(&all)
	return nil
}

// send fills the peer's inbox. It returns true if that is full and packets are left. A
// pending acknowledgement is piggybacked on a request, if one is sent now.
func (l inprocLink) send(q *qp, _ ucs.Time) bool {
	p := &q.txPacket
	if q.typ != verbs.RC {
		for to := q.nextWithRoute(p); to != nil; to = q.nextWithRoute(p) {
			if !l.sendOne(to, p, 0) {
				q.count(cntDroppedInbox, 1)
			}
		}
		return false
	}
	b, n := &q.route.peer.inbox, 0
	full := true
	for ; !b.full(); n++ {
		piggyback := q.rsp.canPiggyback() && q.nextRequest(p)
		if !piggyback && !q.nextResponse(p) && !q.nextAck(p) && !q.nextRequest(p) {
			full = false
			break
		}
		c, seq := b.claim()
		if c == nil { // other senders took the last cell: the packet is lost
			q.count(cntDroppedInbox, 1)
			break
		}
		q.coalesce(p)
		c.fill(p, l.d.index)
		if piggyback {
			c.piggyback(q.takeAck())
		}
		cpu.StoreRelease32(&c.seq, seq)
	}
	if n > 0 {
		q.route.peer.wake()
	}
	return full
}

func (l inprocLink) sendOne(to *route, p *packet, _ ucs.Time) bool {
	if to.group != nil {
		return l.sendGroup(to.group, p)
	}
	peer := to.peer
	if p.Opcode.Info().Kind == wire.KindDatagram { // an address handle leads to a device
		peer = peer.d.engineOf(p.DestQP)
	}
	return l.sendCopy(peer, p, nil)
}

// sendCopy sends p with a copy of its payload to an engine, as a datagram to group if that is
// not nil.
func (l inprocLink) sendCopy(to *engine, p *packet, group *verbs.GID) bool {
	c, seq := to.inbox.claim()
	if c == nil {
		return false
	}
	c.fill(p, l.d.index)
	if group != nil {
		c.toGroup(group)
	}
	if c.nsg != 0 { // a copy of the payload instead of the scatter/gather list
		c.body = bodies.Get().(*body)
		for i, n := 0, 0; i < p.nsg; i++ {
			n += dma(c.body[n:], p.sg[i])
		}
		c.nsg = 0
		c.flags |= cellBody
	}
	cpu.StoreRelease32(&c.seq, seq)
	to.wake()
	return true
}

// inboxFull reports whether only the peer's full inbox keeps q from sending a
// packet. Such a packet counts as unacknowledged, so the retransmission timer runs. If
// the peer does not consume its inbox before the timeout, the queue pair fails, however
// many other senders fill it.
func (q *qp) inboxFull() bool {
	r := &q.req
	if q.d.kind != overInproc || q.route.peer == nil || r.tx == q.sq.end() {
		return false
	}
	moving := q.loadState() == verbs.StateRTS || r.sent > 0 || q.sq.at(r.tx).started
	return moving && q.route.peer.inbox.full()
}

// peerConsumes reports whether the peer has consumed packets of its inbox since the last
// call.
func (q *qp) peerConsumes() bool {
	g := q.route.peer.inbox.readRing.Load()
	h := g.base + g.head.Load()
	moved := h != q.peerConsumed
	q.peerConsumed = h
	return moved
}

// drain handles the packets in the inbox. The caller has the receive token.
//
//hot:bench BenchmarkPingPong
func (e *engine) drain(now ucs.Time) int {
	var q *qp
	g := e.inbox.readRing.Load()
	h := g.head.Load()
	n := 0
	for n < maxDrain {
		c := g.at(h)
		if c.seq.Load() != h+1 {
			if g = e.inbox.nextRing(g, h); g == nil {
				break
			}
			h = 0
			continue
		}
		if q == nil || q.num != c.dest {
			if q != nil {
				q.transmitAndRelease()
			}
			if q = e.d.qps.find(c.dest); q != nil {
				if !q.tryAcquire() {
					return n // its owner is active: retry in the next pass
				}
				q.rx = e
			}
		}
		switch {
		case q == nil:
			e.counts.add(cntDroppedQPN, 1)
		case q.typ != verbs.UD && (q.route.peer == nil || q.route.index != c.from):
			e.counts.add(cntDroppedSource, 1)
		case !q.handleFastCell(c, now):
			e.handleCell(q, c, now)
		}
		if c.flags&cellBody != 0 {
			bodies.Put(c.body)
			c.body = nil
		}
		h++
		n++
		cpu.StoreRelease32(&g.head, h)
	}
	if q != nil {
		q.transmitAndRelease()
	}
	return n
}

// handleCell handles a cell for q. The caller owns q.
func (e *engine) handleCell(q *qp, c *cell, now ucs.Time) {
	p := &e.rxPacket
	if c.flags&cellAck != 0 {
		p.Opcode, p.DestQP, p.PSN, p.PKey = wire.Acknowledge, c.dest, verbs.PSN(c.msn), c.pkey
		p.Syndrome, p.Solicited, p.AckReq, p.n, p.nsg = wire.AckNoCredits, false, false, 0, 0
		q.handlePacket(p, now)
	}
	if !c.read(p, e.d.conf.Switch) {
		e.counts.add(cntDroppedShort, 1)
		return
	}
	if q.typ == verbs.UD {
		p.sgid, p.slid, p.dgid = verbs.GID{}, 0, e.d.gid
		if o := e.d.conf.Switch.device(c.from); o != nil {
			p.sgid, p.slid = o.gid, o.lid
		}
		if c.flags&cellGroup != 0 {
			p.dgid = c.group()
		}
	}
	if p.batchMore > 0 {
		q.handleBatch(p, now)
		return
	}
	q.handlePacket(p, now)
}
