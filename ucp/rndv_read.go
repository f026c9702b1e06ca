package ucp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
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
// rndv_send.go. While the memory is exposed neither side can: the requests complete when the
// read has ended. A sender that cannot expose its memory sends the data instead. A receiver
// that cannot read sends an RTR.

// Within a host the sender exposes its memory before the RTS (offer), under its id, and there is no
// RTL and no key: the receiver fetches the message (startFetch) if its transport finds the exposure.
// Otherwise it sends an RTR. Until the fetch has completed, the sender can cancel: its transport
// withdraws the exposure, and the fetch fails.

// fetchMin is the shortest message that is fetched; a shorter one arrives sooner by messages.
const fetchMin = 1 << 10

// readMin is the shortest message that is read; a shorter one arrives sooner by messages.
const readMin = 16 << 10

// opMem is registered memory of an operation in progress: an exposed region, or the
// buffer of a read or of a zcopy transfer.
type opMem struct {
	uct.Mem
	registrar *workerIface // registered it for this operation; nil: the memory was registered before
	exposer   uct.Exposer  // exposes it under the id of the slot; nil: it is not exposed so
}

// readOp is the slot of a read.
type readOp struct {
	request.Header
	fetches bool // by uct.Fetcher, not by a key
	_       uint32
	key     uint64 // the transport's key of the sender's memory; of a fetch the sender's id
	addr    uint64 // of a fetch the length of the message
	receive uint64 // id of the receive whose data is read
	_       uint64
}

// maxReusable is the number of closed regions that are kept of each iface.
const maxReusable = 1024

// canRead reports whether the iface's device can read a peer's memory into local memory.
func (wi *workerIface) canRead() bool {
	a := wi.iface.Attr()
	return wi.info.Kind == uct.DeviceNet && a.Ops.Has(uct.OpGetZcopy) && a.Get.MaxZcopy > 0 && a.Get.MaxVec > 0 &&
		wi.domain.Attr().Register && wire.KeyHeaderLen+wi.domain.Attr().KeyLen <= a.AM.Bcopy
}

// register returns buf as memory of the iface's domain. If buf lies in a region that the
// program registered, it uses that one. Otherwise it registers buf.
func (wi *workerIface) register(buf []byte, need uct.MemFlags) (opMem, error) {
	if m := wi.t.ctx.findRegion(buf, wi.t.locals[wi.index].Domain, need); m != nil {
		return opMem{Mem: m}, nil
	}
	if last := len(wi.reusable) - 1; last >= 0 {
		m := wi.reusable[last]
		if err := m.Reregister(buf, need); err != nil {
			return opMem{}, err
		}
		wi.reusable = wi.reusable[:last]
		return opMem{Mem: m, registrar: wi}, nil
	}
	m, err := wi.domain.Register(buf, need)
	return opMem{Mem: m, registrar: wi}, err
}

// findRegion returns the region of a domain that covers buf and grants need, nil
// if there is none.
func (x *Context) findRegion(buf []byte, domain int, need uct.MemFlags) uct.Mem {
	if m := x.findMemory(buf, need); m != nil {
		return m.regionIn(domain)
	}
	return nil
}

// findMemory returns memory that covers buf and grants need, nil if there is none.
func (x *Context) findMemory(buf []byte, need uct.MemFlags) *MemHandle {
	all := x.memory.Load()
	if all == nil || len(buf) == 0 {
		return nil
	}
	at := addressOf(buf)
	i, _ := slices.BinarySearchFunc(*all, at+1, compareBase)
	for _, m := range slices.Backward((*all)[max(0, i-overlapping):i]) {
		if off := at - m.base; m.access&need != need || off > uint64(len(m.buf)) || uint64(len(buf)) > uint64(len(m.buf))-off {
			continue
		}
		return m
	}
	return nil
}

// overlapping is the number of handles that findMemory looks at: handles may overlap.
const overlapping = 8

// regionIn returns the memory as registered with a domain. It returns nil if the domain did not
// register it, or the memory is being closed.
func (m *MemHandle) regionIn(domain int) uct.Mem {
	if m.closePending.Load() {
		return nil
	}
	for i := range m.regions {
		if m.regions[i].domain == domain {
			return m.regions[i].Mem
		}
	}
	return nil
}

// attachMem attaches m to slot i until the slot is released.
func (b *slab) attachMem(i uint32, m opMem) {
	if int(i) >= len(b.opMems) {
		b.opMems = append(b.opMems, make([]opMem, len(b.Slots)-len(b.opMems))...)
	}
	b.opMems[i] = m
	b.Slots[i].Flags |= request.FlagExtra
}

// mem returns the registered memory of slot i, nil if there is none.
func (b *slab) mem(i uint32) uct.Mem {
	if int(i) >= len(b.opMems) {
		return nil
	}
	return b.opMems[i].Mem
}

// detachMem detaches the registered memory of slot i, if any. It closes the memory if it was
// registered for this operation.
func (b *slab) detachMem(i uint32) {
	if int(i) >= len(b.opMems) {
		return
	}
	m := b.opMems[i]
	b.opMems[i] = opMem{}
	if m.exposer != nil {
		m.exposer.Withdraw(b.ID(i))
	}
	wi := m.registrar
	if wi == nil || m.Close() != nil {
		return // an access that could not be stopped leaves the memory pinned, and there is no caller to return the error to
	}
	if r, ok := m.Mem.(uct.Reusable); ok && len(wi.reusable) < maxReusable {
		wi.reusable = append(wi.reusable, r)
	}
}

// offer exposes the message in slot i, whose RTS is about to be sent, if the transport can do that. It reports whether the
// message is exposed.
func (l *lane) offer(w *thread, i uint32) bool {
	s := request.As[sendOp](&w.slab.Slots[i])
	if w.slab.exposer(i) != nil {
		return true
	}
	if w.ifaces[l.iface].fetcher == nil || s.length < fetchMin || s.Op == request.TagSendV {
		return false
	}
	ep, ok := l.transport().(uct.Exposer)
	if !ok {
		return false
	}
	buf := w.slab.Bufs[i]
	m := w.ctx.findRegion(buf, w.locals[l.iface].Domain, 0)
	if ep.Expose(w.slab.ID(i), buf, m) != ucs.OK {
		return false
	}
	w.slab.attachMem(i, opMem{Mem: m, exposer: ep})
	return true
}

// fetchesSooner reports whether the receiver fetches the message in slot i, which is longer than lane.maxAllocEager,
// sooner than it would arrive by messages.
func (l *lane) fetchesSooner(w *thread, i uint32) bool {
	s := request.As[sendOp](&w.slab.Slots[i])
	if s.wants&sendEager != 0 || s.Op != request.TagSend && s.Op != request.AMSend {
		return false
	}
	if s.length > l.maxHeapEager {
		return true
	}
	m := w.ctx.findMemory(w.slab.Bufs[i], uct.MemRemotePut|uct.MemRemoteGet)
	return m != nil && m.allocated && m.regionIn(w.locals[l.iface].Domain) != nil
}

// offersNow exposes the active message in slot i, if the receiver can fetch it when its RTS arrives, and its handler gets it
// sooner so than by fragments. A receiver that could not would have to request it, and handle later messages first.
func (l *lane) offersNow(w *thread, i uint32) bool {
	if n := request.As[sendOp](&w.slab.Slots[i]).length; n <= l.maxAllocEager || n > maxPrefetch || !l.fetchesSooner(w, i) {
		return false
	}
	ep, ok := l.transport().(uct.Exposer)
	return ok && ep.FetchesNow() && l.offer(w, i)
}

// exposer returns the transport that exposes the message in slot i under the slot's id, nil if none does.
func (b *slab) exposer(i uint32) uct.Exposer {
	if int(i) >= len(b.opMems) {
		return nil
	}
	return b.opMems[i].exposer
}

// withdraw ends the exposure of the message in slot i, if there is one. It returns false if the receiver
// has fetched the message: its ReadDone is going to arrive.
func (b *slab) withdraw(i uint32) bool {
	ep := b.exposer(i)
	if ep == nil {
		return true
	}
	if ep.Withdraw(b.ID(i)) == ucs.Busy {
		return false
	}
	b.opMems[i].exposer = nil
	return true
}

// expose exposes the first wanted bytes of the message in slot i and sends their key.
// recvID is the receiver's id. It returns false if that is not possible.
func (w *thread) expose(i uint32, recvID, wanted uint64) bool {
	s := request.As[sendOp](&w.slab.Slots[i])
	l := &w.lanes[s.Lane]
	wi, buf := w.ifaces[l.iface], w.slab.Bufs[i]
	if !wi.canRead() || uint64(len(buf)) < wanted || s.Op == request.TagSendV || s.Op == request.TagSendUint64 {
		return false
	}
	m, err := wi.register(buf[:wanted], uct.MemRemoteGet)
	if err != nil {
		return false
	}
	w.slab.attachMem(i, m)
	s.phase = phaseExposed
	l.use()
	text := binary.LittleEndian.AppendUint64(w.scratch[:0], addressOf(buf))
	text = append(text, byte(w.locals[wi.index].Domain))
	w.control(s.Lane, control{id: wire.Key, hdr: recvID, text: m.AppendKey(text)})
	return true
}

// handleReadDone receives the message that the data of a send was read, and completes the send.
func (wi *workerIface) handleReadDone(rx *rxConn, id uint64, data []byte) {
	i := wi.sendByID(rx, id)
	if i == 0 {
		return
	}
	if s := &wi.t.slab.Slots[i]; !exposes(s) && wi.t.slab.exposer(i) == nil || len(data) != 0 {
		wi.protocolError(rx)
		return
	}
	if ep := wi.t.slab.exposer(i); ep != nil {
		ep.Fetched(wi.t.slab.ID(i))
		wi.t.slab.opMems[i].exposer = nil
	}
	lane := wi.t.slab.Slots[i].Lane
	wi.t.end(i, ucs.OK)
	wi.t.closeIfDrained(lane)
}

// handleKey receives the key of exposed memory. It reads the data, or requests it by messages.
func (wi *workerIface) handleKey(rx *rxConn, id uint64, data []byte) {
	w := wi.t
	if len(data) <= wire.KeyHeaderLen {
		wi.protocolError(rx)
		return
	}
	i := wi.fetchByID(rx, id)
	if i == 0 {
		return
	}
	r := request.As[recvOp](&w.slab.Slots[i])
	if r.recv != recvAwaitsKey {
		wi.protocolError(rx)
		return
	}
	r.recv = recvRequested
	sendID, wanted := r.senderID, min(r.length, uint64(len(w.slab.Bufs[i])))
	if !rx.startRead(i, data) {
		rx.reply(control{id: wire.RTR, hdr: sendID, n: wire.RTRLen, a: id, b: wanted})
	}
}

// startRead starts to read the data of the receive in slot i from the exposed memory that data
// describes. It returns false if that is not possible.
func (rx *rxConn) startRead(i uint32, data []byte) bool {
	w := rx.w
	lane := rx.replyLane
	if lane == 0 || w.lanes[lane].state == laneFailed {
		return false
	}
	l := &w.lanes[lane]
	wi := w.ifaces[l.iface]
	if !wi.canRead() || l.domain != data[wire.KeyHeaderLen-1] {
		return false // the reply lane leads to another device
	}
	k, err := wi.domain.UnpackKey(data[wire.KeyHeaderLen:])
	if err != nil {
		return false
	}
	buf := w.slab.Bufs[i]
	buf = buf[:min(request.As[recvOp](&w.slab.Slots[i]).length, uint64(len(buf)))]
	m, err := wi.register(buf, 0)
	if err != nil {
		wi.domain.ReleaseKey(k)
		return false
	}
	c := w.slab.Alloc(request.RndvRead)
	r, x := request.As[recvOp](&w.slab.Slots[i]), request.As[readOp](&w.slab.Slots[c])
	r.recv = recvReading
	rx.pendingFetches--
	x.Lane, x.Flags = lane, request.FlagReported
	x.key, x.addr, x.receive = uint64(k), wire.Uint64(data, 0), w.slab.ID(i)
	w.slab.Bufs[c] = buf
	w.slab.attachMem(c, m)
	l.use() // keeps the lane open
	w.count.Inc(cntRndvRead)
	if st := w.try(c); st != ucs.InProgress {
		w.end(c, st)
	}
	return true
}

// startFetch starts to fetch the first wanted bytes of the message that the sender of rx announced as id,
// with n bytes, for the receive in slot i. It returns false if it sends the RTR now.
func (rx *rxConn) startFetch(i uint32, id, n, wanted uint64) bool {
	w := rx.w
	if rx.iface.fetcher == nil || wanted < fetchMin || w.slab.inPieces(i) {
		return false
	}
	lane := rx.openReplyLane()
	if lane == 0 || w.lanes[lane].state == laneFailed {
		return false
	}
	c := w.slab.Alloc(request.RndvRead)
	r, x := request.As[recvOp](&w.slab.Slots[i]), request.As[readOp](&w.slab.Slots[c])
	r.recv, r.received = recvReading, w.slab.ID(c)
	x.Lane, x.Flags = lane, request.FlagReported
	x.fetches, x.key, x.addr, x.receive = true, id, n, w.slab.ID(i)
	w.slab.Bufs[c] = w.slab.Bufs[i][:wanted]
	w.lanes[lane].use() // keeps the lane open
	w.count.Inc(cntRndvRead)
	if st := w.try(c); st != ucs.InProgress {
		w.end(c, st)
	}
	return true
}

// cancelFetch ends the fetch for the receive in slot i. It returns false if that is not possible now.
func (w *thread) cancelFetch(i uint32) bool {
	r := request.As[recvOp](&w.slab.Slots[i])
	c := w.slab.Find(r.received)
	if r.recv != recvReading || c == 0 || w.slab.Slots[c].Op != request.RndvRead {
		return false
	}
	x := request.As[readOp](&w.slab.Slots[c])
	if !x.fetches || x.receive != w.slab.ID(i) {
		return false
	}
	if w.rxConns[r.rx].iface.fetcher.CancelFetch(w.slab.Token(c), false) != ucs.OK {
		r.recv = recvRevoked
		return false
	}
	lane := x.Lane
	w.slab.release(c)
	r.recv, r.received = recvRequested, 0
	w.lanes[lane].unuse()
	w.closeIfDrained(lane)
	return true
}

// fetchCompleted completes the receive in slot i, whose fetch from rx has ended with st.
func (rx *rxConn) fetchCompleted(i uint32, lane uint32, st ucs.Status) {
	w := rx.w
	r := request.As[recvOp](&w.slab.Slots[i])
	was := r.recv
	r.recv, r.received = recvRequested, 0
	switch {
	case st == ucs.OK:
		w.control(lane, control{id: wire.ReadDone, hdr: r.senderID})
		w.dataReceived(i)
	case st == ucs.BufferExposed:
		rx.reject(r.senderID, ucs.Canceled, "its receive was canceled")
		if err := w.slab.errs[i]; err != nil {
			w.slab.saveErr(i, fmt.Errorf("%w: %w", ErrBufferExposed, err))
		}
		w.completeFetch(i, st)
	case w.slab.errs[i] != nil: // the sender has aborted the message
		w.completeFetch(i, ucs.PeerFailed)
	case was == recvCanceled:
		w.completeFetch(i, ucs.Canceled)
	case was == recvRevoked:
		rx.reject(r.senderID, ucs.Canceled, "its receive was canceled")
		w.completeFetch(i, ucs.Canceled)
	case st == ucs.Unsupported:
		rx.reply(control{id: wire.RTR, hdr: r.senderID, n: wire.RTRLen, a: w.slab.ID(i), b: min(r.length, uint64(len(w.slab.Bufs[i])))})
	case st == ucs.Canceled: // the sender's notification, or the failure of the connection, completes the receive
	default:
		err := fmt.Errorf("copy from the sender's memory: %w", st.Err())
		rx.reject(r.senderID, ucs.Rejected, err.Error())
		rx.saveReason(i, err)
		w.completeFetch(i, st)
	}
}

var readOperation = operation{progress: (*thread).resumeRead, complete: (*thread).readCompleted}

// resumeRead posts the read, on the transport itself: a stalled lane does not delay it.
func (w *thread) resumeRead(i uint32) ucs.Status {
	s := request.As[readOp](&w.slab.Slots[i])
	l := &w.lanes[s.Lane]
	if l.state == laneFailed {
		return l.status()
	}
	if s.fetches {
		rx := w.rxConns[request.As[recvOp](&w.slab.Slots[uint32(s.receive)]).rx]
		m := w.ctx.findRegion(w.slab.Bufs[i], w.locals[rx.iface.index].Domain, 0)
		return rx.iface.fetcher.Fetch(rx.id, s.key, s.addr, w.slab.Bufs[i], m, w.slab.Token(i))
	}
	w.am.vec[0] = uct.Vec{Buf: w.slab.Bufs[i], Mem: w.slab.opMems[i].Mem}
	st := l.transport().GetZcopy(w.am.vec[:], s.addr, uct.RKey(s.key), w.slab.Token(i))
	w.am.vec[0] = uct.Vec{}
	return st
}

// readCompleted completes the receive of the read in slot c, and notifies the sender.
func (w *thread) readCompleted(c uint32, st ucs.Status) bool {
	s := request.As[readOp](&w.slab.Slots[c])
	lane, receive := s.Lane, s.receive
	l := &w.lanes[lane]
	fetches := s.fetches
	if !fetches {
		w.ifaces[l.iface].domain.ReleaseKey(uct.RKey(s.key))
	}
	w.slab.release(c)
	if i := w.slab.Find(receive); i == 0 || w.slab.Slots[i].State != request.StateLive {
		// The receive has ended.
	} else if r := request.As[recvOp](&w.slab.Slots[i]); fetches {
		w.rxConns[r.rx].fetchCompleted(i, lane, st)
	} else {
		r.recv = recvPosted
		switch {
		case st != ucs.OK:
			err := st.Err()
			if l.err != nil {
				err = l.err
			}
			if w.slab.errs[i] == nil { // otherwise the sender has aborted the message
				w.slab.saveErr(i, &OpError{Op: r.Op.String(), Peer: shortID(w.peers.UUID(l.peer)), Err: fmt.Errorf("read the sender's memory: %w", err)})
			}
		case r.length > uint64(len(w.slab.Bufs[i])):
			w.control(lane, control{id: wire.ReadDone, hdr: r.senderID})
			st = ucs.Truncated
		default:
			w.control(lane, control{id: wire.ReadDone, hdr: r.senderID})
		}
		w.end(i, st)
	}
	w.lanes[lane].unuse()
	w.closeIfDrained(lane)
	return true
}
