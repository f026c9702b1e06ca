package shm

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/platform"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

var (
	_ uct.Fetcher    = (*iface)(nil)
	_ uct.WordPoller = (*iface)(nil)
)

// A message is fetched from these lengths on. On the machine of docs/perf a fetch took 0.7 us from allocated memory and
// 1.5 us from the heap at 4 KB, and a message through the ring 0.55 us at 2 KB, 1.3 us at 4 KB, 1.8 us at 8 KB.
const (
	fetchAllocated = 3<<10 + 1
	fetchHeap      = 6<<10 + 1
)

// copyError is the reason why the system permits no copies between processes. Whether it permits them for a peer is
// known after the first one.
var copyError = sync.OnceValue(platform.TryCopy)

// fetch is a message that is being copied from the peer's memory.
type fetch struct {
	entry *copyEntry // nil: the copy has not begun
	id, n uint64     // the exposure, and the length of its memory
	addr  uint64
	src   regionRef // that holds the message
	dst   []byte
	mem   uct.Mem // the registration of dst
	token uct.Token
	own   uint64 // pieces that this side has claimed
	done  uint64 // copyEntry.done when the copy began
	guard uint64 // address of the guard page
	// claimed is the number of pieces that were claimed when the fetch was canceled or withdrawn, and its
	// end is not reported because the peer may be copying one of them. 0: it was not.
	claimed uint64
}

// Fetch: see uct.Fetcher. It copies the first piece, unless an earlier copy from the peer is in progress.
func (f *iface) Fetch(rxConn uint32, id, n uint64, dst []byte, m uct.Mem, t uct.Token) uct.Status {
	i := int(rxConn) - 1
	if i < 0 || i >= len(f.Slots) || f.Slots[i] == nil {
		return ucs.Canceled
	}
	e := f.Slots[i]
	if e.copies.state == copiesRefused || len(dst) == 0 || uint64(len(dst)) > n {
		return ucs.Unsupported
	}
	x := fetch{id: id, n: n, dst: dst, mem: m, token: t}
	fs := &e.copies.fetches
	if len(*fs) == 0 {
		if e.copies.peer.seg != nil {
			if st, _ := x.advance(e); st != ucs.InProgress {
				return st
			}
		}
		f.fetching = append(f.fetching, e)
		f.requestPass()
	}
	*fs = append(*fs, x)
	return ucs.InProgress
}

// continueFetches copies a piece from some peers, and reports the fetches that have ended. It returns the number of pieces and reports.
func (f *iface) continueFetches() (n int) {
	for range min(len(f.fetching), copyTurns) {
		if f.nextFetching++; f.nextFetching >= len(f.fetching) {
			f.nextFetching = 0
		}
		n += f.continueFetch(f.fetching[f.nextFetching])
		if len(f.fetching) == 0 {
			break
		}
	}
	return n
}

// continueFetch copies a piece of the oldest fetch of which pieces are left, or reports the end of an older one. It
// returns the number of pieces and reports.
func (f *iface) continueFetch(e *ep) int {
	for i := range e.copies.fetches {
		st, copied := e.copies.fetches[i].advance(e)
		if st != ucs.InProgress {
			f.endFetch(e, i, st)
			return 1
		}
		if copied {
			return 1
		}
	}
	return 0
}

// CancelFetch: see uct.Fetcher.
func (f *iface) CancelFetch(t uct.Token) uct.Status {
	for _, e := range f.fetching {
		for i := range e.copies.fetches {
			x := &e.copies.fetches[i]
			if x.token != t {
				continue
			}
			if x.revoke(); !x.settle(e, settleSpin) {
				return ucs.Busy
			}
			f.removeFetch(e, i)
			return ucs.OK
		}
	}
	return ucs.OK
}

// endFetch removes fetch i of e and reports its end.
func (f *iface) endFetch(e *ep, i int, st uct.Status) {
	f.ended[0] = uct.Event{Token: e.copies.fetches[i].token, Status: st}
	f.removeFetch(e, i)
	f.handler.HandleEvents(f.ended[:])
}

func (f *iface) removeFetch(e *ep, i int) {
	fs := e.copies.fetches
	last := copy(fs[i:], fs[i+1:]) + i
	fs[last] = fetch{}
	if e.copies.fetches = fs[:last]; last == 0 {
		f.fetching = without(f.fetching, e)
	}
}

// endFetches ends all copies from the peer of e, because the connection has ended. It returns their number.
func (f *iface) endFetches(e *ep) (n int) {
	for ; len(e.copies.fetches) > 0; n++ {
		e.copies.fetches[0].end(e)
		f.endFetch(e, 0, ucs.Canceled)
	}
	return n
}

// advance begins the copy if need be, and copies a piece, if one is left. It returns InProgress if the fetch goes on.
func (x *fetch) advance(e *ep) (st uct.Status, copied bool) {
	switch {
	case x.claimed > 0:
		if !x.settle(e, 0) {
			return ucs.InProgress, false
		}
		return ucs.Canceled, false
	case x.entry == nil:
		if st := x.begin(e); st != ucs.OK {
			return st, false
		}
	}
	c, length := x.entry, uint64(len(x.dst))
	s := c.load()
	for ; s.step() == entryCopying && s.belongs(x.id) && s.pieces()*pieceSize < length; s = c.load() {
		if !c.change(s, s+1) {
			continue
		}
		x.own++
		fault.At(fault.Piece)
		off := s.pieces() * pieceSize
		if st := e.readPeer(x.dst[off:min(off+pieceSize, length)], x.addr+off, x.src); st != ucs.OK {
			x.end(e)
			return st, true
		}
		copied = true
		if off+pieceSize < length {
			return ucs.InProgress, true
		}
	}
	if s.step() != entryCopying || !s.belongs(x.id) { // withdrawn; the owner copies no piece then
		return ucs.Canceled, copied
	}
	if x.own+c.done.Load()-x.done < (length+pieceSize-1)/pieceSize {
		return ucs.InProgress, copied // the owner copies the last one
	}
	switch {
	case !c.change(s, s&^stepMask|entryCopied):
		return ucs.Canceled, copied
	case c.failed.Load() == x.id:
		return ucs.RemoteAccess, copied
	}
	return ucs.OK, copied
}

// begin finds the exposure and begins its copy. It returns Unsupported if there is none.
func (x *fetch) begin(e *ep) uct.Status {
	if e.Life.Over() {
		return ucs.Canceled
	}
	t := &e.copies.peer
	if t.seg == nil {
		if e.readSocket(); t.seg == nil {
			return ucs.Unsupported
		}
	}
	i := t.find(x.id)
	if i < 0 {
		return ucs.Unsupported
	}
	c := t.at(i)
	s, addr, src := c.load(), c.addr, c.src
	if s.step() != entryExposed || c.length != x.n || !s.belongs(x.id) {
		return ucs.Unsupported
	}
	if b, st := e.peerMemory(src, addr, x.n); st != ucs.OK {
		return st
	} else if b == nil && (e.copies.state != copiesAllowed || e.pid == 0) {
		return ucs.Unsupported
	}
	if now := ucs.Now(); e.pidfd >= 0 && now.Sub(e.copies.checkedAt) >= aliveFor {
		if hungUp(e.pidfd) {
			return ucs.Canceled
		}
		e.copies.checkedAt = now
	}
	c.dstRegion = e.share(x.mem)
	x.done, x.guard = c.done.Load(), e.copies.guardAddress()
	c.dst, c.want, c.guard = addressOfBytes(x.dst), uint64(len(x.dst)), x.guard
	if !c.change(s, s&^stepMask|entryCopying) {
		return ucs.Unsupported
	}
	x.entry, x.addr, x.src = c, addr, src
	if len(x.dst) > pieceSize {
		t.active().Store(uint64(i + 1))
	}
	return ucs.OK
}

// revoke has no further piece of the fetch copied.
func (x *fetch) revoke() {
	if x.entry == nil || x.claimed > 0 {
		return
	}
	s := x.entry.load()
	for s.step() == entryCopying && s.belongs(x.id) && !x.entry.change(s, entryFree) {
		s = x.entry.load()
	}
	if s.step() == entryCopying && s.belongs(x.id) { // otherwise the owner has withdrawn it, and copies no piece
		x.claimed = s.pieces()
	}
}

// end revokes the fetch, which has failed, and waits until the peer copies no piece of it.
func (x *fetch) end(e *ep) {
	if x.revoke(); !x.settle(e, mapped.CloseWait) {
		e.f.d.logf("a peer may still write to the buffer of a failed receive", ucs.ErrBufferExposed)
	}
}

// settleSpin is how long a cancel waits for a piece that the peer is copying.
const settleSpin = 100 * time.Microsecond

// settle waits until the peer copies no piece of a fetch that was revoked, at most for limit. It reports
// whether that is so.
//
// A peer that has claimed a piece, and is stopped or has not reached its system call yet, fails in it without the
// guard page. A peer that is stopped is not inside of the call. Nothing stops a peer that has mapped the buffer.
func (x *fetch) settle(e *ep, limit time.Duration) bool {
	copies := func() bool { return x.claimed > 0 && x.claimed > x.own+x.entry.done.Load()-x.done }
	start := ucs.Now()
	for copies() && ucs.Now().Sub(start) < min(limit, settleSpin) {
		cpu.Yield()
	}
	for copies() {
		if x.guard == e.copies.guardAddress() {
			e.breakGuard()
		}
		if e.pidfd >= 0 && hungUp(e.pidfd) || x.entry.dstRegion == (regionRef{}) && platform.Stopped(e.pid) {
			return true
		}
		if ucs.Now().Sub(start) >= limit {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// guardAddress returns the address of the guard page; 0: there is none.
func (x *copies) guardAddress() uint64 {
	if x.guard == nil {
		b, err := mapped.MapAnonymous(1)
		if err != nil {
			return 0
		}
		x.guard = b
	}
	return addressOfBytes(x.guard)
}

// breakGuard makes the guard page inaccessible, and maps another one for the other fetches from the peer. The page
// stays mapped: its address must not become that of other memory.
func (e *ep) breakGuard() {
	old := e.copies.guard
	e.copies.guard = nil
	guard := e.copies.guardAddress()
	for i := range e.copies.fetches {
		if x := &e.copies.fetches[i]; x.entry != nil && x.claimed == 0 {
			x.guard, x.entry.guard = guard, guard
		}
	}
	if err := unix.Mprotect(old, unix.PROT_NONE); err != nil {
		e.f.d.logf("protect a guard page", err)
	}
}

// readPeer copies from address addr of the peer's process, in region ref.
func (e *ep) readPeer(p []byte, addr uint64, ref regionRef) uct.Status {
	b, st := e.peerMemory(ref, addr, uint64(len(p)))
	if st != ucs.OK || b != nil {
		copy(p, b)
		return st
	}
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
		e.copies.state = copiesMapped
		e.f.d.logf("messages are copied through the ring", err)
	}
	return ucs.Unsupported
}

// aliveFor is how long the peer's process is taken to be alive after a check. Within this time the
// kernel does not give its process id to another process.
const aliveFor = time.Millisecond
