package ucp

import (
	"crypto/rand"
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Emulated RMA and AMO, the owner's side. Each handler checks everything that a request
// names. A request that the memory's key does not permit fails alone: its reply has the
// status, or the next reply to a flush of the same rx connection.
//
// The requests of one rx connection are carried out in the order in which they arrive.
// So a reply to wire.Flush covers all requests before it, and the first error is all that
// has to be kept.

// handlePut carries out a put.
func (wi *workerIface) handlePut(rx *rxConn, addr uint64, data []byte) {
	if rx.peer == 0 || len(data) <= wire.EmulKeyLen {
		wi.protocolError(rx)
		return
	}
	key, data := emulKey(wire.Uint64(data, 0)), data[wire.EmulKeyLen:]
	m, to, st := wi.t.ctx.emul.acquire(key, addr, uint64(len(data)), uct.MemRemotePut)
	if st != ucs.OK {
		rx.setEmulErr(st)
		return
	}
	copyWhole(to, data)
	m.release()
}

// setEmulErr records the status for the reply to the next flush.
func (rx *rxConn) setEmulErr(st ucs.Status) {
	if rx.emulErr == ucs.OK {
		rx.emulErr = st
	}
}

// emulGet replies with the requested bytes as they are now. Requests that the peer sends
// later must not change them.
func (wi *workerIface) handleGet(rx *rxConn, addr uint64, data []byte) {
	if rx.peer == 0 || len(data) != wire.GetLen || wire.Uint64(data, 2) == 0 || wire.Uint64(data, 2) > emulMaxPiece {
		wi.protocolError(rx)
		return
	}
	w, id := wi.t, wire.Uint64(data, 1)
	m, from, st := w.ctx.emul.acquire(emulKey(wire.Uint64(data, 0)), addr, wire.Uint64(data, 2), uct.MemRemoteGet)
	if st != ucs.OK {
		rx.sendReply(id, 0, st)
		return
	}
	rx.sendGetReply(id, from)
	m.release()
}

// sendGetReply sends b to the sender of rx, in as many messages as needed. If it gets NoResource
// it queues a copy.
func (rx *rxConn) sendGetReply(id uint64, b []byte) {
	w := rx.w
	lane := rx.openReplyLane()
	if lane == 0 {
		rx.disconnectUnreplied(wire.GetReply)
		return
	}
	for reconnected := false; len(b) > 0; {
		l := &w.lanes[lane]
		n := min(len(b), l.maxBcopy)
		st := ucs.NoResource
		if l.pendingControl.Head == 0 && l.state != laneFailed {
			var to []byte
			ep := l.transport()
			if to, st = ep.ReserveAM(wire.GetReply, id, n); st == ucs.OK {
				copyWhole(to, b[:n])
				ep.CommitAM(n)
			}
		}
		if st != ucs.OK && st != ucs.NoResource && !reconnected {
			if lane = rx.reconnectReplyLane(); lane == 0 {
				rx.disconnectUnreplied(wire.GetReply)
				return
			}
			reconnected = true
			continue
		}
		if st == ucs.NoResource && l.state != laneFailed {
			c := w.pool.Get(n)
			text := w.pool.Bytes(c)[:n:n]
			copyWhole(text, b[:n])
			w.queueControl(lane, control{id: wire.GetReply, hdr: id, text: text, mem: c})
		}
		rx.replySent = true
		b = b[n:]
	}
}

// handleAtomic carries out an atomic with the CPU.
func (wi *workerIface) handleAtomic(rx *rxConn, addr uint64, data []byte) {
	if rx.peer == 0 || len(data) != wire.AtomicLen {
		wi.protocolError(rx)
		return
	}
	w, a := wi.t, wire.ParseAtomic(data)
	if a.Op >= uct.NumAtomicOps || a.Width != 4 && a.Width != 8 || addr%uint64(a.Width) != 0 {
		wi.protocolError(rx)
		return
	}
	m, b, st := w.ctx.emul.acquire(emulKey(a.Key), addr, uint64(a.Width), uct.MemRemoteAtomic)
	old := uint64(0)
	if st == ucs.OK {
		if a.Width == 4 {
			at, _ := wordAt[uint32](b)
			before, _ := a.Op.Fetch32(at, uint32(a.Operand), uint32(a.Compare))
			old = uint64(before)
		} else {
			at, _ := wordAt[uint64](b)
			old, _ = a.Op.Fetch64(at, a.Operand, a.Compare)
		}
		m.release()
	}
	switch {
	case a.ID != 0:
		rx.sendReply(a.ID, old, st)
	case st != ucs.OK:
		rx.setEmulErr(st)
	}
}

// handleFlush replies with the status of all requests that rx received before.
func (wi *workerIface) handleFlush(rx *rxConn, data []byte) {
	if rx.peer == 0 || len(data) != wire.EmulKeyLen {
		wi.protocolError(rx)
		return
	}
	st := rx.emulErr
	rx.emulErr = ucs.OK
	rx.sendReply(wire.Uint64(data, 0), 0, st)
}

func (rx *rxConn) sendReply(id, v uint64, st ucs.Status) {
	rx.reply(control{id: wire.Reply, hdr: id, n: wire.ReplyLen, a: v, b: uint64(st)})
}

// emulTable holds the memory of a context that peers reach by emulation, by number. Workers
// look regions up without a lock while other goroutines add and remove regions.
//
// Invariant: a store to list[n] happens before any peer can have the key, and remove
// waits until no access uses the buffer. enter counts its access in users before it
// uses the buffer. If remove has set emulClosed before, the count is negative and enter
// does not use it.
type emulTable struct {
	mu   sync.Mutex
	list atomic.Pointer[[]atomic.Pointer[emulMem]] // entry 0 is none
	free []uint32
	next uint32
}

// emulMem is a region in the table.
type emulMem struct {
	key    emulKey
	base   uint64
	buf    []byte
	access uct.MemFlags
	users  atomic.Int64 // accesses in progress; with emulClosed added no more begin
}

// emulKey identifies a region of a context: its number, and above it a random tag. The tag
// differs when the number is reused.
type emulKey uint64

const (
	emulNumberBits = 24
	emulMaxMems    = 1 << emulNumberBits
	emulClosed     = -1 << 62
)

func (k emulKey) number() uint32 { return uint32(k) % emulMaxMems }

// add makes buf, which is not empty, reachable. It returns nil if the table is full.
func (t *emulTable) add(buf []byte, access uct.MemFlags) *emulMem {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.next + 1
	if k := len(t.free); k > 0 {
		n, t.free = t.free[k-1], t.free[:k-1]
	} else if n == emulMaxMems {
		return nil
	} else {
		t.next = n
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails; see crypto/rand
	m := &emulMem{key: emulKey(binary.LittleEndian.Uint64(random[:]))<<emulNumberBits | emulKey(n), base: addressOf(buf), buf: buf, access: access}
	old := t.list.Load()
	if old != nil && int(n) < len(*old) {
		(*old)[n].Store(m)
		return m
	}
	list := make([]atomic.Pointer[emulMem], 16)
	if old != nil {
		list = make([]atomic.Pointer[emulMem], 2*len(*old))
		for i := range *old {
			list[i].Store((*old)[i].Load())
		}
	}
	list[n].Store(m)
	t.list.Store(&list)
	return m
}

// remove removes m from the table and waits for the accesses in progress. Each is a copy of
// bounded length. m may be nil.
func (t *emulTable) remove(m *emulMem) {
	if m == nil || m.users.Load() < 0 {
		return
	}
	m.users.Add(emulClosed)
	for m.users.Load() != emulClosed {
		runtime.Gosched()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	(*t.list.Load())[m.key.number()].Store(nil)
	t.free = append(t.free, m.key.number())
}

// acquire begins an access to n bytes at addr; leave ends it. It returns RemoteAccess if the
// range, the right or the key does not fit, or the memory was closed.
func (t *emulTable) acquire(key emulKey, addr, n uint64, need uct.MemFlags) (*emulMem, []byte, ucs.Status) {
	list := t.list.Load()
	if list == nil || int(key.number()) >= len(*list) {
		return nil, nil, ucs.RemoteAccess
	}
	m := (*list)[key.number()].Load()
	if m == nil || m.key != key || m.access&need == 0 {
		return nil, nil, ucs.RemoteAccess
	}
	off, size := addr-m.base, uint64(len(m.buf))
	if off > size || n > size-off {
		return nil, nil, ucs.RemoteAccess
	}
	if m.users.Add(1) < 0 {
		m.release()
		return nil, nil, ucs.RemoteAccess
	}
	return m, m.buf[off:][:n], ucs.OK
}

func (m *emulMem) release() { m.users.Add(-1) }
