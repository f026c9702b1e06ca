package ud

import (
	"encoding/binary"

	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// AMShort: see uct.Endpoint.
//
//hot:bench BenchmarkAM
func (e *endpoint) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	f := e.f
	if len(p) > f.attr.AM.Short {
		return ucs.TooLong
	}
	if !f.Enter() {
		return ucs.NoResource
	}
	slot, b, st := e.allocPacket(id, arq.HeaderLen+len(p))
	if st == ucs.OK {
		copy(b[arq.HeaderLen:], p)
		e.send(slot, b, id, hdr)
	}
	f.Leave()
	return st
}

// AMUint64: see uct.Endpoint.
//
//hot:bench BenchmarkAM
func (e *endpoint) AMUint64(id uct.AMID, hdr, v uint64) uct.Status {
	f := e.f
	if !f.Enter() {
		return ucs.NoResource
	}
	slot, b, st := e.allocPacket(id, arq.HeaderLen+8)
	if st == ucs.OK {
		binary.LittleEndian.PutUint64(b[arq.HeaderLen:], v)
		e.send(slot, b, id, hdr)
	}
	f.Leave()
	return st
}

// AMZcopy copies the vectors into one packet. A retransmission needs the data unchanged
// until it is acknowledged, and copying a packet costs less than that wait.
func (e *endpoint) AMZcopy(id uct.AMID, hdr uint64, header []byte, v []uct.Vec, _ uct.Token) uct.Status {
	f := e.f
	n := 0
	for i := range v {
		if n += len(v[i].Buf); n > f.attr.AM.MaxZcopy {
			return ucs.TooLong
		}
	}
	if len(header) > maxHeader || len(v) > maxVec {
		return ucs.InvalidParam
	}
	n += len(header)
	if !f.Enter() {
		return ucs.NoResource
	}
	slot, b, st := e.allocPacket(id, arq.HeaderLen+n)
	if st == ucs.OK {
		at := b[arq.HeaderLen:]
		at = at[copy(at, header):]
		for i := range v {
			at = at[copy(at, v[i].Buf):]
		}
		e.send(slot, b, id, hdr)
	}
	f.Leave()
	return st
}

// ReserveAM: see uct.Endpoint.
func (e *endpoint) ReserveAM(id uct.AMID, hdr uint64, n int) ([]byte, uct.Status) {
	f := e.f
	switch {
	case n < 0:
		return nil, ucs.InvalidParam
	case n > f.attr.AM.Bcopy:
		return nil, ucs.TooLong
	case !f.Enter():
		return nil, ucs.NoResource
	}
	slot, b, st := e.allocPacket(id, arq.HeaderLen+n)
	if st == ucs.OK {
		e.resID, e.resHdr, e.resLen, e.resSlot = id, hdr, n, slot
		b = b[arq.HeaderLen:]
	}
	f.Leave()
	return b, st
}

// CommitAM: see uct.Endpoint.
func (e *endpoint) CommitAM(n int) {
	f := e.f
	f.EnterWait()
	defer f.Leave()
	if e.resLen < 0 || n < 0 || n > e.resLen {
		return
	}
	if e.status != ucs.OK { // failed since ReserveAM
		e.dropReservation()
		return
	}
	e.resLen = -1
	k, i := f.tx.at(e.resSlot)
	e.send(e.resSlot, k.Bytes(i)[:arq.HeaderLen+n], e.resID, e.resHdr)
}

// Abort: see uct.Endpoint.
func (e *endpoint) Abort() {
	e.f.EnterWait()
	defer e.f.Leave()
	e.dropReservation()
}

// dropReservation frees the slot of the open reservation, if there is one. Only calls of the user do
// that, since the user writes into the slot until CommitAM or Abort.
func (e *endpoint) dropReservation() {
	if e.resLen >= 0 {
		e.resLen = -1
		e.f.tx.put(e.resSlot)
	}
}

// allocPacket allocates a slot for a packet of n bytes that can be sent now.
//
//hot:bench BenchmarkAM
func (e *endpoint) allocPacket(id uct.AMID, n int) (uint32, []byte, uct.Status) {
	f := e.f
	if e.opStatus != ucs.OK || id >= uct.NumAMIDs || !e.s.CanPush() || !f.canPost() {
		if st := e.allocPacketSlow(id, n); st != ucs.OK {
			return 0, nil, st
		}
	}
	slot := f.tx.take(n)
	if slot == arq.NoSlot {
		if f.pollSendCQ(); !f.tx.hasFree(n) {
			return 0, nil, e.noResource(n)
		}
		slot = f.tx.take(n)
	}
	k, i := f.tx.at(slot)
	return slot, k.Bytes(i)[:n], ucs.OK
}

// allocPacketSlow is the slow half of allocPacket. It starts the flow and polls the send CQ. It
// returns OK if a packet can be sent afterwards.
//
//go:noinline
func (e *endpoint) allocPacketSlow(id uct.AMID, n int) uct.Status {
	f := e.f
	switch {
	case e.opStatus != ucs.OK:
		return e.opStatus
	case id >= uct.NumAMIDs:
		return ucs.InvalidParam
	case !e.s.Started():
		e.start()
	}
	if !f.canPost() {
		f.pollSendCQ()
	}
	if !e.s.CanPush() || !f.canPost() {
		return e.noResource(n)
	}
	return ucs.OK
}

func (e *endpoint) noResource(n int) uct.Status {
	e.refusedPass, e.refusedLen = e.f.passes+1, n
	e.f.stats.Inc(statNoResource)
	return ucs.NoResource
}

// send queues the packet b in slot and transmits what the window allows. The caller has
// written the payload.
//
//hot:bench BenchmarkAM
func (e *endpoint) send(slot uint32, b []byte, id uct.AMID, hdr uint64) {
	f := e.f
	binary.LittleEndian.PutUint64(b[16:], hdr)
	b[0] = byte(id) // the AM ID, until transmit writes the header word
	k, i := f.tx.at(slot)
	k.lens[i], k.lastWR[i] = uint16(len(b)), 0
	if !e.inUnacked {
		e.startUnacked()
	}
	e.s.Push(slot)
	if e.s.Sendable() {
		e.transmitReady()
	}
	if f.ProgressDepth == 0 && !f.batching {
		f.flushPosts()
	}
}

// startUnacked reads the clock and adds e to iface.unacked. send calls it for the first message
// after everything was acknowledged.
//
//go:noinline
func (e *endpoint) startUnacked() {
	e.f.now = ucs.Now()
	e.addUnacked(e.f.now.Add(e.f.conf.MinRTO))
}

// transmitReady transmits packets while the window and the send queue have room.
//
//hot:bench BenchmarkAM
func (e *endpoint) transmitReady() {
	f := e.f
	for e.s.Sendable() && f.canPost() {
		slot, a := e.s.Transmit(f.now)
		e.transmit(slot, a)
	}
}

// transmit sends the packet in slot, whose first header word is a. A pending ACK for the
// peer is piggybacked on it.
//
//hot:bench BenchmarkAM
func (e *endpoint) transmit(slot uint32, a uint64) {
	f, p := e.f, e.p
	var ack uint64
	if r := p.pendingACK; r != nil {
		p.pendingACK = nil
		if r.Held() == 0 && r.AckPending() { // else: a flow with out-of-order packets needs a selective ACK, a packet of its own
			ack = r.AckWord(uint8(f.recvWindow))
		}
	}
	if id, end := arq.EndID(slot); end {
		h := arq.Header{A: a | uint64(id), B: ack}
		f.sendControl(p, &h, nil)
		return
	}
	k, i := f.tx.at(slot)
	if k.lastWR[i] > f.completedID {
		if f.pollSendCQ(); k.lastWR[i] > f.completedID {
			return // The device has not sent the previous copy yet. For the flow this one counts as lost.
		}
	}
	b := k.Bytes(i)[:k.lens[i]]
	binary.LittleEndian.PutUint64(b, a|uint64(b[0]&(uct.NumAMIDs-1)))
	binary.LittleEndian.PutUint64(b[8:], ack)
	f.post(p, slot, b)
}
