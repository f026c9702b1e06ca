package ucp

import (
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Rendezvous by RDMA read: between network devices, the receiver's device reads a long
// message from the sender's memory into the buffer of the receive.
//
//	sender                                  receiver
//	  RTS tag, its id, length       ──▶      matched, or queued as unexpected
//	                                ◀──      RTL the sender's id, its own id, bytes wanted
//	  key its id, address, key      ──▶      reads
//	                                ◀──      taken the sender's id
//
// The sender exposes its memory only after the RTL. Until then both sides can cancel as in
// rndv.go. While the memory is exposed neither side can: the requests complete when the
// read has ended. A sender that cannot expose its memory sends the data instead. A receiver
// that cannot read sends an RTR.

// readMin is the shortest message that is read; a shorter one arrives sooner by messages.
const readMin = 16 << 10

// keyHead is the length of what precedes the transport's key in an amKey: address, domain.
const keyHead = 9

// loan is registered memory of an operation in progress: an exposed region, or the
// buffer of a read or of a zcopy transfer.
type loan struct {
	uct.Mem
	port *port // registered it for this operation; nil: the memory was registered before
}

// maxSpares is the number of closed regions that are kept of each port.
const maxSpares = 1024

// canRead reports whether the port's device can read a peer's memory into local memory.
func (p *port) canRead() bool {
	a := p.iface.Attr()
	return p.info.Kind == uct.DeviceNet && a.Ops.Has(uct.OpGetZcopy) && a.Get.MaxZcopy > 0 && a.Get.MaxVec > 0 &&
		p.domain.Attr().Register && keyHead+p.domain.Attr().KeyLen <= a.AM.Bcopy
}

// register returns buf as memory of the port's domain. If buf lies in a region that the
// program registered, it uses that one. Otherwise it registers buf.
func (p *port) register(buf []byte, need uct.MemFlags) (loan, error) {
	if m := p.w.ctx.regionOf(buf, p.w.locals[p.index].Domain, need); m != nil {
		return loan{Mem: m}, nil
	}
	if last := len(p.spares) - 1; last >= 0 {
		m := p.spares[last]
		if err := m.Reregister(buf, need); err != nil {
			return loan{}, err
		}
		p.spares = p.spares[:last]
		return loan{m, p}, nil
	}
	m, err := p.domain.Register(buf, need)
	return loan{m, p}, err
}

// retire closes memory that register registered, after the operation has completed.
func (p *port) retire(m uct.Mem) {
	if m.Close() != nil {
		return // an access could not be stopped; the memory stays pinned, and there is no caller to return the error to
	}
	if r, ok := m.(uct.Reusable); ok && len(p.spares) < maxSpares {
		p.spares = append(p.spares, r)
	}
}

// regionOf returns the region of a domain that covers buf and grants need, nil
// if there is none.
func (x *Context) regionOf(buf []byte, domain int, need uct.MemFlags) uct.Mem {
	x.mu.Lock()
	defer x.mu.Unlock()
	for c := range x.owned {
		m, ok := c.(*MemHandle)
		if !ok || m.access&need != need {
			continue
		}
		if off := addressOf(buf) - m.base; off > uint64(len(m.buf)) || uint64(len(buf)) > uint64(len(m.buf))-off {
			continue
		}
		if r := m.of(domain); r != nil {
			return r
		}
	}
	return nil
}

// of returns the memory as registered with a domain. It returns nil if the domain did not
// register it, or the memory is being closed.
func (m *MemHandle) of(domain int) uct.Mem {
	if m.leaving.Load() {
		return nil
	}
	for i := range m.regions {
		if m.regions[i].domain == domain {
			return m.regions[i].Mem
		}
	}
	return nil
}

// lend attaches m to slot i until the slot is released.
func (b *slab) lend(i uint32, m loan) {
	if int(i) >= len(b.loans) {
		b.loans = append(b.loans, make([]loan, len(b.slots)-len(b.loans))...)
	}
	b.loans[i] = m
	b.slots[i].flags |= flagAside
}

// lent returns the registered memory of slot i, nil if there is none.
func (b *slab) lent(i uint32) uct.Mem {
	if int(i) >= len(b.loans) {
		return nil
	}
	return b.loans[i].Mem
}

// recycle detaches the registered memory of slot i, if any. It closes the memory if it was
// registered for this operation.
func (b *slab) giveBack(i uint32) {
	if int(i) >= len(b.loans) {
		return
	}
	m := b.loans[i]
	b.loans[i] = loan{}
	if m.port != nil {
		m.port.retire(m.Mem)
	}
}

// unlend ends the exposure of the memory of the send in slot i.
func (w *Worker) unlend(i uint32) {
	w.slab.giveBack(i)
	w.t.lanes[w.slab.slots[i].lane].lent--
}

// askedToLend receives an RTL. It exposes the memory of the message, or sends its data.
func (p *port) askedToLend(s *source, id uint64, data []byte) {
	i, theirs, wanted := p.wanted(s, id, data)
	if i == 0 {
		return
	}
	w := p.w
	if w.slab.slots[i].phase() == phaseLent {
		p.garbage(s)
		return
	}
	if wanted == 0 || !w.lendTo(i, theirs, wanted) {
		w.sendWanted(i, theirs, wanted)
		return
	}
	w.giveCredit(w.slab.slots[i].lane)
}

// lendTo exposes the first wanted bytes of the message in slot i and sends their key.
// theirs is the receiver's id. It returns false if that is not possible.
func (w *Worker) lendTo(i uint32, theirs, wanted uint64) bool {
	s := &w.slab.slots[i]
	l := &w.t.lanes[s.lane]
	p, buf := w.ports[l.port], w.slab.bufs[i]
	if !p.canRead() || uint64(len(buf)) < wanted || s.op == opTagSendV || s.op == opTagSendUint64 {
		return false
	}
	m, err := p.register(buf[:wanted], uct.MemRemoteGet)
	if err != nil {
		return false
	}
	w.slab.lend(i, m)
	s.setPhase(phaseLent)
	l.lent++
	text := binary.LittleEndian.AppendUint64(w.scratch[:0], addressOf(buf))
	text = append(text, byte(w.locals[p.index].Domain))
	w.control(s.lane, control{id: amKey, hdr: theirs, text: m.AppendKey(text)})
	return true
}

// taken receives the message that the data of a send was read, and completes the send.
func (p *port) taken(s *source, id uint64, data []byte) {
	i := p.sendNamed(s, id)
	if i == 0 {
		return
	}
	if p.w.slab.slots[i].phase() != phaseLent || len(data) != 0 {
		p.garbage(s)
		return
	}
	lane := p.w.slab.slots[i].lane
	p.w.end(i, ucs.OK)
	p.w.readOver(lane)
}

// readsFrom reports whether n bytes of the sender of s should be read from its memory.
func (w *Worker) readsFrom(s *source, n uint64) bool {
	if n < readMin {
		return false
	}
	lane := w.replyLane(s)
	if lane == 0 {
		return false
	}
	p := w.ports[w.t.lanes[lane].port]
	return p.canRead() && n <= uint64(p.iface.Attr().Get.MaxZcopy)
}

// lent receives the key of exposed memory. It reads the data, or requests it by messages.
func (p *port) lent(s *source, id uint64, data []byte) {
	w := p.w
	if len(data) <= keyHead {
		p.garbage(s)
		return
	}
	i := p.fetchNamed(s, id)
	if i == 0 {
		return
	}
	r := &w.slab.slots[i]
	if r.parent != awaitsKey {
		p.garbage(s)
		return
	}
	r.parent = 0
	theirs, wanted := r.arg, min(r.n, uint64(len(w.slab.bufs[i])))
	if !w.read(i, s, data) {
		w.reply(s, control{id: amRTR, hdr: theirs, n: rtrLen, a: id, b: wanted})
	}
}

// read starts to read the data of the receive in slot i from the exposed memory that data
// describes. It returns false if that is not possible.
func (w *Worker) read(i uint32, s *source, data []byte) bool {
	lane := s.reply
	if lane == 0 || w.t.lanes[lane].status != ucs.OK {
		return false
	}
	l := &w.t.lanes[lane]
	p := w.ports[l.port]
	if !p.canRead() || l.domain != data[keyHead-1] {
		return false // the reply lane leads to another device
	}
	k, err := p.domain.UnpackKey(data[keyHead:])
	if err != nil {
		return false
	}
	buf := w.slab.bufs[i]
	buf = buf[:min(w.slab.slots[i].n, uint64(len(buf)))]
	m, err := p.register(buf, 0)
	if err != nil {
		p.domain.ReleaseKey(k)
		return false
	}
	c := w.slab.take(opRead)
	r, x := &w.slab.slots[i], &w.slab.slots[c]
	r.left = reading
	s.fetches--
	x.lane, x.flags = lane, flagReported
	x.tag, x.arg, x.off, x.n = uint64(k), payloadUint64(data, 0), w.slab.id(i), uint64(len(buf))
	w.slab.bufs[c] = buf
	w.slab.lend(c, m)
	l.reads++ // keeps the lane open
	w.count.Inc(cntRndvRead)
	if st := w.try(c); st != ucs.InProgress {
		w.end(c, st)
	}
	return true
}

// resumeRead posts the read, on the transport itself: a stalled lane does not delay it.
func (w *Worker) resumeRead(i uint32) ucs.Status {
	s := &w.slab.slots[i]
	l := &w.t.lanes[s.lane]
	if l.status != ucs.OK {
		return l.status
	}
	w.am.vec[0] = uct.Vec{Buf: w.slab.bufs[i], Mem: w.slab.loans[i].Mem}
	st := l.transport().GetZcopy(w.am.vec[:], s.arg, uct.RKey(s.tag), w.slab.token(i))
	w.am.vec[0] = uct.Vec{}
	return st
}

// readEnded completes the receive of the read in slot c, and notifies the sender.
func (w *Worker) readEnded(c uint32, st ucs.Status) {
	s := &w.slab.slots[c]
	lane, receive := s.lane, s.off
	l := &w.t.lanes[lane]
	w.ports[l.port].domain.ReleaseKey(uct.RKey(s.tag))
	w.slab.release(c)
	if i := w.slab.find(receive); i != 0 && w.slab.slots[i].state == slotLive {
		r := &w.slab.slots[i]
		r.left = 0
		switch {
		case st != ucs.OK:
			w.saveErr(i, &OpError{Op: r.op.info().name, Peer: shortID(w.peers.UUID(l.peer)), Err: fmt.Errorf("read the sender's memory: %w", st.Err())})
		case r.n > uint64(len(w.slab.bufs[i])):
			w.control(lane, control{id: amTaken, hdr: r.arg})
			st = ucs.Truncated
		default:
			w.control(lane, control{id: amTaken, hdr: r.arg})
		}
		w.end(i, st)
	}
	w.t.lanes[lane].reads--
	w.readOver(lane)
}
