package shm

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

var _ uct.Fetcher = (*iface)(nil)

// fetch is a message that is being copied from the peer's memory.
type fetch struct {
	e     *ep
	entry *copyEntry // nil: the copy has not begun
	id, n uint64     // the exposure, and the length of its memory
	addr  uint64
	dst   []byte
	token uct.Token
}

// Fetch: see uct.Fetcher. It copies the first piece, unless an earlier copy from the peer is in progress.
func (f *iface) Fetch(rxConn uint32, id, n uint64, dst []byte, _ uct.Mem, t uct.Token) uct.Status {
	i := int(rxConn) - 1
	if i < 0 || i >= len(f.Slots) || f.Slots[i] == nil {
		return ucs.Canceled
	}
	e := f.Slots[i]
	if e.copies.state == copiesRefused || len(dst) == 0 || uint64(len(dst)) > n {
		return ucs.Unsupported
	}
	x := fetch{e: e, id: id, n: n, dst: dst, token: t}
	if e.copies.peer.seg != nil && !f.fetchesFrom(e) {
		if st := x.advance(); st != ucs.InProgress {
			return st
		}
	}
	f.fetches = append(f.fetches, x)
	f.requestPass()
	return ucs.InProgress
}

// fetchesFrom reports whether a copy from the peer of e is in progress.
func (f *iface) fetchesFrom(e *ep) bool {
	for i := range f.fetches {
		if f.fetches[i].e == e {
			return true
		}
	}
	return false
}

// fetchesPerPass is the number of copies of which a pass copies a piece.
const fetchesPerPass = 4

// continueFetches copies a piece of the oldest copies of each peer, and reports those that have ended. It
// returns the number of reports.
func (f *iface) continueFetches() (n int) {
	for i := 0; i < min(len(f.fetches), fetchesPerPass); {
		if st := f.fetches[i].advance(); st == ucs.InProgress {
			i++
		} else {
			f.endFetch(i, st)
			n++
		}
	}
	return n
}

// CancelFetch: see uct.Fetcher.
func (f *iface) CancelFetch(t uct.Token) uct.Status {
	for i := range f.fetches {
		if f.fetches[i].token == t {
			f.removeFetch(i)
			break
		}
	}
	return ucs.OK
}

// endFetch removes fetch i and reports its end.
func (f *iface) endFetch(i int, st uct.Status) {
	f.ended[0] = uct.Event{Token: f.fetches[i].token, Status: st}
	f.removeFetch(i)
	f.handler.HandleEvents(f.ended[:])
}

func (f *iface) removeFetch(i int) {
	copy(f.fetches[i:], f.fetches[i+1:])
	last := len(f.fetches) - 1
	f.fetches[last] = fetch{}
	f.fetches = f.fetches[:last]
}

// endFetches ends all copies from the peer of e, because the connection has ended. It returns their number.
func (f *iface) endFetches(e *ep) (n int) {
	for i := 0; i < len(f.fetches); {
		if f.fetches[i].e != e {
			i++
			continue
		}
		f.endFetch(i, ucs.Canceled)
		n++
	}
	return n
}

// advance begins the copy if need be, and copies a piece. It returns InProgress if pieces are left.
func (x *fetch) advance() uct.Status {
	if x.entry == nil {
		if st := x.begin(); st != ucs.OK {
			return st
		}
	}
	c, length := x.entry, uint64(len(x.dst))
	var s copyState
	var off uint64
	for claimed := false; !claimed; claimed = c.change(s, s+1) {
		s = c.load()
		if off = s.pieces() * pieceSize; s.step() != entryCopying || !s.belongs(x.id) || off >= length {
			return ucs.Canceled // withdrawn
		}
	}
	fault.At(fault.Piece)
	n := min(pieceSize, length-off)
	if st := x.e.readPeer(x.dst[off:off+n], x.addr+off); st != ucs.OK {
		return st
	}
	if off+n < length {
		return ucs.InProgress
	}
	if !c.change(s+1, s&^stepMask|entryCopied) {
		return ucs.Canceled
	}
	return ucs.OK
}

// begin finds the exposure and begins its copy. It returns Unsupported if there is none.
func (x *fetch) begin() uct.Status {
	e := x.e
	if e.Life.Over() {
		return ucs.Canceled
	}
	if e.copies.peer.seg == nil {
		if e.readSocket(); e.copies.peer.seg == nil {
			return ucs.Unsupported
		}
	}
	c := e.copies.peer.find(x.id)
	if c == nil {
		return ucs.Unsupported
	}
	s, addr := c.load(), c.addr
	if s.step() != entryExposed || c.length != x.n || !s.belongs(x.id) {
		return ucs.Unsupported
	}
	if !e.peerAlive() {
		return ucs.Canceled
	}
	if !c.change(s, s&^stepMask|entryCopying) {
		return ucs.Unsupported
	}
	x.entry, x.addr = c, addr
	return ucs.OK
}

// readPeer copies from address addr of the peer's process.
func (e *ep) readPeer(p []byte, addr uint64) uct.Status {
	_, err := shmem.ProcessRead(e.pid, p, uintptr(addr))
	switch {
	case err == nil:
		return ucs.OK
	case errors.Is(err, unix.ESRCH):
		return ucs.Canceled // the peer has exited
	case errors.Is(err, unix.EFAULT):
		return ucs.RemoteAccess
	}
	if e.copies.state == copiesAllowed {
		e.copies.state = copiesRefused
		e.f.d.logf("messages are copied through the ring", err)
	}
	return ucs.Unsupported
}

// aliveFor is how long the peer's process is taken to be alive after a check. Within this time the
// kernel does not give its process id to another process.
const aliveFor = 1_000_000 // ns

// peerAlive reports whether the peer's process still runs, so that its process id is not reused yet.
func (e *ep) peerAlive() bool {
	now := ucs.Now()
	if e.pidfd < 0 || now.Sub(e.copies.checkedAt) < aliveFor {
		return true
	}
	if hungUp(e.pidfd) {
		return false
	}
	e.copies.checkedAt = now
	return true
}
