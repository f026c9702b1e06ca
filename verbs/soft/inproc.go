package soft

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
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

// cell is a packet on its way between two devices of this process. Short
// payloads travel in it; of long ones it names the memory, which the receiver
// looks up by its key, so that memory that was taken away meanwhile is a lost
// packet.
type cell struct {
	seq   atomic.Uint32
	dest  verbs.QPN
	psn   verbs.PSN
	op    wire.Opcode
	flags uint8
	nsg   uint8 // pieces; 0: the payload is in the cell
	syn   wire.Syndrome
	n     uint32
	from  uint32 // the device
	imm   uint32
	msn   uint32
	small [smallLen]byte

	addr, swapAdd, compare, old uint64
	rkey, dlen, qkey            uint32
	src                         verbs.QPN
	pkey                        uint16

	long [longLen]byte
	sg   [verbs.MaxSGE]verbs.SGE
}

const (
	smallLen = 32 // with the header one cache line
	longLen  = verbs.InlineLen
)

const (
	cellSE = 1 << iota
	cellAckReq
)

// inbox is where the in-process device's packets arrive: a ring that many write
// and the holder of the receive token reads.
type inbox struct {
	cells []cell
	_     ucs.Pad
	tail  atomic.Uint32
	_     ucs.Pad
	head  atomic.Uint32 // moved under the receive token
}

func newInbox(depth int) *inbox {
	n := 8
	for n < depth {
		n *= 2
	}
	b := &inbox{cells: make([]cell, n)}
	for i := range b.cells {
		b.cells[i].seq.Store(uint32(i))
	}
	return b
}

func (b *inbox) at(i uint32) *cell { return &b.cells[i&uint32(len(b.cells)-1)] }

// ready reports whether a packet is there. Only a hint without the token.
func (b *inbox) ready() bool { h := b.head.Load(); return b.at(h).seq.Load() == h+1 }

// claim takes a place for a packet; nil: there is none.
func (b *inbox) claim() (*cell, uint32) {
	for {
		t := b.tail.Load()
		c := b.at(t)
		switch d := int32(c.seq.Load() - t); {
		case d == 0:
			if b.tail.CompareAndSwap(t, t+1) {
				return c, t + 1
			}
		case d < 0:
			return nil, 0
		}
	}
}

// full reports whether claim would find no place.
func (b *inbox) full() bool { t := b.tail.Load(); return int32(b.at(t).seq.Load()-t) < 0 }

// fill writes p into the cell.
func (c *cell) fill(p *packet, from uint32) {
	c.dest, c.psn, c.op, c.n, c.from = p.dest, p.psn, p.op, uint32(p.n), from
	c.flags, c.nsg = 0, 0
	if p.se {
		c.flags = cellSE
	}
	if p.ackReq {
		c.flags |= cellAckReq
	}
	info := p.op.Info()
	if info.Headers != 0 {
		c.fillHeaders(p)
	}
	c.pkey = p.pkey
	switch {
	case p.n == 0:
	case p.n <= smallLen && p.nsg == 1:
		dma(c.small[:], p.sg[0])
	case p.inline:
		dma(c.long[:], p.sg[0])
	default:
		c.nsg = uint8(p.nsg)
		copy(c.sg[:], p.ref[:p.nsg])
	}
}

func (c *cell) fillHeaders(p *packet) {
	c.syn, c.msn, c.imm = p.syn, p.msn, p.imm
	c.addr, c.rkey, c.dlen = p.addr, p.rkey, p.dlen
	c.swapAdd, c.compare, c.old = p.swapAdd, p.compare, p.old
	c.qkey, c.src = p.qkey, p.src
}

// read makes the packet in the cell; false: its payload is gone.
func (c *cell) read(p *packet, s *Switch) bool {
	p.op, p.dest, p.psn, p.pkey = c.op, c.dest, c.psn, c.pkey
	p.se, p.ackReq, p.n = c.flags&cellSE != 0, c.flags&cellAckReq != 0, int(c.n)
	if c.op.Info().Headers != 0 {
		p.syn, p.msn, p.imm = c.syn, c.msn, c.imm
		p.addr, p.rkey, p.dlen = c.addr, c.rkey, c.dlen
		p.swapAdd, p.compare, p.old = c.swapAdd, c.compare, c.old
		p.qkey, p.src = c.qkey, c.src
	}
	p.nsg = 1
	switch {
	case c.nsg > 0:
		return c.resolve(p, s)
	case p.n <= smallLen:
		p.sg[0] = c.small[:p.n]
	default:
		p.sg[0] = c.long[:p.n]
	}
	return true
}

// resolve finds the sender's memory.
func (c *cell) resolve(p *packet, s *Switch) bool {
	d := s.device(c.from)
	if d == nil {
		return false
	}
	p.nsg = int(c.nsg)
	for i := range p.nsg {
		m := d.mrs.find(c.sg[i].LKey)
		if m == nil {
			return false
		}
		if p.sg[i] = m.at(c.sg[i].Addr, int(c.sg[i].Len)); p.sg[i] == nil {
			return false
		}
	}
	return true
}

// sendInproc hands over what the queue pair has to send; true: the peer's inbox
// is full, and more is left.
func (q *qp) sendInproc() bool {
	b := q.to.peer.in
	p := &q.out
	for n := 0; ; n++ {
		if b.full() {
			return true
		}
		if !q.nextReply(p) && !q.nextRequest(p) {
			if n > 0 {
				q.to.peer.wake()
			}
			return false
		}
		c, seq := b.claim()
		if c == nil { // others were faster: the packet is lost
			q.count(cntDroppedInbox, 1)
			return true
		}
		c.fill(p, q.d.index)
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
	h := q.to.peer.in.head.Load()
	moved := h != q.peerHead
	q.peerHead = h
	return moved
}

// drain acts on the packets in the inbox. The caller has the receive token.
func (d *device) drain(now ucs.Time) int {
	b := d.in
	p := &d.come
	var q *qp
	n := 0
	for ; n < maxDrain; n++ {
		h := b.head.Load()
		c := b.at(h)
		if c.seq.Load() != h+1 {
			break
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
		switch {
		case q == nil:
			d.counts.add(cntDroppedQPN, 1)
		case q.typ == verbs.RC && (q.to.peer == nil || q.to.peer.index != c.from):
			d.counts.add(cntDroppedSource, 1)
		case !c.read(p, d.conf.Switch):
			d.counts.add(cntDroppedShort, 1)
		default:
			if q.typ == verbs.UD {
				d.fromInproc(p, c.from)
			}
			q.arrive(p, now)
		}
		storeRelease32(&b.head, h+1)
		storeRelease32(&c.seq, h+uint32(len(b.cells)))
	}
	if q != nil {
		q.leave()
	}
	return n
}

// fromInproc says who sent a datagram.
func (d *device) fromInproc(p *packet, from uint32) {
	p.sgid, p.slid = verbs.GID{}, 0
	if o := d.conf.Switch.device(from); o != nil {
		p.sgid, p.slid = o.gid, o.lid
	}
}
