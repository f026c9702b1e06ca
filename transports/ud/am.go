package ud

import (
	"encoding/binary"

	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// AMShort: see uct.Endpoint.
//
// hot: BenchmarkAM.
func (e *endpoint) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	f := e.f
	if len(p) > f.attr.AM.Short {
		return ucs.TooLong
	}
	if !f.enter() {
		return ucs.NoResource
	}
	slot, b, st := e.room(id, arq.HeadLen+len(p))
	if st == ucs.OK {
		copy(b[arq.HeadLen:], p)
		e.send(slot, b, id, hdr)
	}
	f.leave()
	return st
}

// AMUint64: see uct.Endpoint.
//
// hot: BenchmarkAM.
func (e *endpoint) AMUint64(id uct.AMID, hdr, v uint64) uct.Status {
	f := e.f
	if !f.enter() {
		return ucs.NoResource
	}
	slot, b, st := e.room(id, arq.HeadLen+8)
	if st == ucs.OK {
		binary.LittleEndian.PutUint64(b[arq.HeadLen:], v)
		e.send(slot, b, id, hdr)
	}
	f.leave()
	return st
}

// AMZcopy copies the vectors into one packet. A retransmission needs the data unchanged
// until it is acknowledged, and copying a packet costs less than that wait.
func (e *endpoint) AMZcopy(id uct.AMID, hdr uint64, head []byte, v []uct.Vec, _ uct.Token) uct.Status {
	f := e.f
	n := 0
	for i := range v {
		if n += len(v[i].Buf); n > f.attr.AM.MaxZcopy {
			return ucs.TooLong
		}
	}
	if len(head) > maxHead || len(v) > maxVec {
		return ucs.InvalidParam
	}
	n += len(head)
	if !f.enter() {
		return ucs.NoResource
	}
	slot, b, st := e.room(id, arq.HeadLen+n)
	if st == ucs.OK {
		at := b[arq.HeadLen:]
		at = at[copy(at, head):]
		for i := range v {
			at = at[copy(at, v[i].Buf):]
		}
		e.send(slot, b, id, hdr)
	}
	f.leave()
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
	case !f.enter():
		return nil, ucs.NoResource
	}
	slot, b, st := e.room(id, arq.HeadLen+n)
	if st == ucs.OK {
		e.resID, e.resHdr, e.resLen, e.slot = id, hdr, n, slot
		b = b[arq.HeadLen:]
	}
	f.leave()
	return b, st
}

// CommitAM: see uct.Endpoint.
func (e *endpoint) CommitAM(n int) {
	f := e.f
	f.enterWait()
	defer f.leave()
	if e.resLen < 0 || n < 0 || n > e.resLen {
		return
	}
	if e.status != ucs.OK { // failed since ReserveAM
		e.drop()
		return
	}
	e.resLen = -1
	e.send(e.slot, f.tx.bytes(e.slot)[:arq.HeadLen+n], e.resID, e.resHdr)
}

// Abort: see uct.Endpoint.
func (e *endpoint) Abort() {
	e.f.enterWait()
	defer e.f.leave()
	e.drop()
}

// drop frees the slot of the open reservation, if there is one. Only calls of the user do
// that, since the user writes into the slot until CommitAM or Abort.
func (e *endpoint) drop() {
	if e.resLen >= 0 {
		e.resLen = -1
		e.f.tx.give(e.slot)
	}
}

// room allocates a slot for a packet of n bytes that can be sent now.
//
// hot: BenchmarkAM.
func (e *endpoint) room(id uct.AMID, n int) (uint32, []byte, uct.Status) {
	f := e.f
	if e.gate != ucs.OK || id >= uct.NumAMIDs || !e.s.Room() || !f.credit() {
		if st := e.noRoom(id, n); st != ucs.OK {
			return 0, nil, st
		}
	}
	slot := f.tx.take(n)
	if slot == arq.NoSlot {
		if f.reap(); !f.tx.free(n) {
			return 0, nil, e.refuse(n)
		}
		slot = f.tx.take(n)
	}
	return slot, f.tx.bytes(slot)[:n], ucs.OK
}

// noRoom is the slow path of room. It starts the flow and reaps send completions. It
// returns OK if a packet can be sent afterwards.
//
//go:noinline
func (e *endpoint) noRoom(id uct.AMID, n int) uct.Status {
	f := e.f
	switch {
	case e.gate != ucs.OK:
		return e.gate
	case id >= uct.NumAMIDs:
		return ucs.InvalidParam
	case !e.s.Started():
		e.start()
	}
	if !f.credit() {
		f.reap()
	}
	if !e.s.Room() || !f.credit() {
		return e.refuse(n)
	}
	return ucs.OK
}

func (e *endpoint) refuse(n int) uct.Status {
	e.shortAt, e.want = e.f.passes+1, n
	e.f.stats.Inc(statNoResource)
	return ucs.NoResource
}

// send queues the packet b in slot and transmits what the window allows. The caller has
// written the payload.
//
// hot: BenchmarkAM.
func (e *endpoint) send(slot uint32, b []byte, id uct.AMID, hdr uint64) {
	f := e.f
	binary.LittleEndian.PutUint64(b[16:], hdr)
	b[0] = byte(id) // the AM ID, until transmit writes the header word
	f.tx.setLen(slot, len(b))
	f.tx.setReadBy(slot, 0)
	if !e.busy {
		e.resume()
	}
	e.s.Push(slot)
	if e.s.Sendable() {
		e.pump()
	}
	if f.depth == 0 && !f.collecting {
		f.flushPosts()
	}
}

// resume adds e to iface.busy and sets its timer. send calls it for the first message
// after everything was acknowledged.
//
//go:noinline
func (e *endpoint) resume() {
	e.f.now = ucs.Now()
	e.busy = true
	e.f.busy = append(e.f.busy, e)
	e.f.due = min(e.f.due, e.f.now.Add(e.f.conf.MinRTO))
	e.f.wakeAt(e.f.due)
}

// pump transmits packets while the window and the send queue have room.
//
// hot: BenchmarkAM.
func (e *endpoint) pump() {
	f := e.f
	for e.s.Sendable() && f.credit() {
		slot, a := e.s.Transmit(f.now)
		e.transmit(slot, a)
	}
}

// transmit sends the packet in slot, whose first header word is a. A pending ACK for the
// peer is piggybacked on it.
//
// hot: BenchmarkAM.
func (e *endpoint) transmit(slot uint32, a uint64) {
	f, p := e.f, e.p
	var ack uint64
	if p.owed != nil {
		ack = f.ride(p)
	}
	if id, end := arq.EndID(slot); end {
		h := arq.Head{A: a | uint64(id), B: ack}
		f.control(p, &h, nil)
		return
	}
	b := f.tx.bytes(slot)[:f.tx.len(slot)]
	if f.tx.readBy(slot) > f.completed {
		if f.reap(); f.tx.readBy(slot) > f.completed {
			return // The device has not sent the previous copy yet. For the flow this one counts as lost.
		}
	}
	binary.LittleEndian.PutUint64(b, a|uint64(b[0]&(uct.NumAMIDs-1)))
	binary.LittleEndian.PutUint64(b[8:], ack)
	f.post(p, slot, b)
}
