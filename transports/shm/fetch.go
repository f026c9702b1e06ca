package shm

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/transports/internal/conn"
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

// fetch is a message that is being copied from the peer's memory.
type fetch struct {
	entry     *copyEntry // nil: the copy has not begun
	id, n     uint64     // the exposure, and the length of its memory
	addr      uint64
	src       regionRef // that holds the message
	mapped    bool      // this side maps the message
	alone     bool      // the owner is to copy nothing
	dst       []byte
	mem       uct.Mem // the registration of dst
	token     uct.Token
	own       uint64    // pieces that this side has claimed
	done      uint64    // copyEntry.done when the copy began
	guard     uint64    // address of the guard page
	waited    int       // passes in which this side had nothing to copy
	dstRegion regionRef // that holds the buffer, and the peer maps
	// claimed is the number of pieces that were claimed when the fetch was revoked, and its end is not reported
	// because the peer may be copying one of them. 0: it was not. result is the status of that end.
	claimed   uint64
	result    uct.Status
	revokedAt ucs.Time
}

// sender returns the connection whose messages have rxConn, nil if it has been released.
func (f *iface) sender(rxConn uint32) *ep {
	if i := int(rxConn) - 1; i >= 0 && i < len(f.Slots) {
		return f.Slots[i]
	}
	return nil
}

// Fetch: see uct.Fetcher. It copies the first piece, unless an earlier copy from the peer is in progress.
func (f *iface) Fetch(rxConn uint32, id, n uint64, dst []byte, m uct.Mem, t uct.Token) uct.Status {
	e := f.sender(rxConn)
	if e == nil {
		return ucs.Canceled
	}
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

// Expect: see uct.Fetcher. The line of the entry is in the cache of the owner, which has written it: it takes as long as the
// whole rest of a short fetch.
func (f *iface) Expect(rxConn uint32, id uint64) {
	if e := f.sender(rxConn); e != nil && e.copies.peer.seg != nil {
		cpu.Prefetch(e.copies.peer.seg.Bytes()[entriesOffset+entrySize*index(id, 0):][:64])
	}
}

// FetchNow: see uct.Fetcher. It claims all pieces at once, so that it does not wait for the owner.
func (f *iface) FetchNow(rxConn uint32, id, n uint64, dst []byte) uct.Status {
	e := f.sender(rxConn)
	if e == nil {
		return ucs.Canceled
	}
	if e.copies.state == copiesRefused || len(dst) == 0 || uint64(len(dst)) > n || len(dst) > maxRun*pieceSize {
		return ucs.Unsupported
	}
	x := fetch{id: id, n: n, dst: dst, alone: true}
	st := x.begin(e)
	if st == ucs.OK {
		fault.At(fault.Piece)
		if st = e.readPeer(dst, x.addr, x.src); st != ucs.OK {
			x.revoke(st)
		}
	}
	switch st {
	case ucs.OK:
	case ucs.Canceled: // the connection is over, or the peer's process
		return ucs.PeerFailed
	default:
		return st
	}
	fault.At(fault.PieceCopied)
	if s := x.entry.load(); s.step() != entryCopying || !s.belongs(id) || !x.entry.change(s, s&^stepMask|entryCopied) {
		return ucs.Canceled // withdrawn
	}
	return ucs.OK
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

// ownerPasses is the number of passes that a fetch waits for the owner's last piece before the next fetch begins. If
// that began at once, this side would often copy pieces that the owner copied of the message before, and both cores
// would write the same lines of a buffer in turn.
const ownerPasses = 64

// continueFetch copies a piece of the oldest fetch of which pieces are left, or reports the end of an older one. It
// returns the number of pieces and reports.
func (f *iface) continueFetch(e *ep) int {
	for i := range e.copies.fetches {
		x := &e.copies.fetches[i]
		st, copied := x.advance(e)
		if st != ucs.InProgress {
			f.endFetch(e, i, st)
			return 1
		}
		if copied {
			return 1
		}
		if x.waited++; x.waited < ownerPasses {
			break
		}
	}
	return 0
}

// CancelFetch: see uct.Fetcher.
func (f *iface) CancelFetch(t uct.Token, wait bool) uct.Status {
	for _, e := range f.fetching {
		for i := range e.copies.fetches {
			x := &e.copies.fetches[i]
			if x.token != t {
				continue
			}
			st, limit := ucs.OK, settleSpin
			if x.revoke(ucs.Canceled); wait {
				limit = f.d.drainTime()
			}
			if !x.settle(e, limit) {
				st = ucs.Busy
			}
			if st == ucs.OK || wait {
				f.removeFetch(e, i)
			}
			return st
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
		f.endFetch(e, 0, e.copies.fetches[0].end(e))
	}
	return n
}

// advance begins the copy if need be, and copies a piece, if one is left. It returns InProgress if the fetch goes on.
func (x *fetch) advance(e *ep) (st uct.Status, copied bool) {
	if x.claimed > 0 {
		return x.ending(e), false
	}
	begins := x.entry == nil
	if begins {
		if st := x.begin(e); st != ucs.OK {
			return st, false
		}
	}
	c, length := x.entry, uint64(len(x.dst))
	total := piecesOf(length)
	s := c.load()
	for begins || s.step() == entryCopying && s.belongs(x.id) && s.pieces() < total {
		off, n := uint64(0), x.own
		if !begins {
			off, n = s.peers()*pieceSize, x.run(total, s)
			if !c.change(s, s+copyState(n)*peersPiece) {
				s = c.load()
				continue
			}
			x.own += n
		}
		begins = false
		fault.At(fault.Piece)
		if st := e.readPeer(x.dst[off:min(off+n*pieceSize, length)], x.addr+off, x.src); st != ucs.OK {
			x.revoke(st)
			return x.ending(e), true
		}
		copied = true
		fault.At(fault.PieceCopied)
		if s = c.load(); s.pieces() < total {
			return ucs.InProgress, true
		}
	}
	if s.step() != entryCopying || !s.belongs(x.id) { // withdrawn; the owner copies no piece then
		return ucs.Canceled, copied
	}
	got := x.own + c.done.Load() - x.done
	if s.pieces() != total || got > total {
		e.f.stats.Inc(statGarbage)
		e.f.FailLater(e, conn.PeerFailed("it wrote an impossible number of pieces"))
		return ucs.Canceled, copied
	}
	if got < total {
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

// begin finds the exposure and begins its copy, with a claim to the first pieces. It returns Unsupported if there is none.
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
	b, st := e.peerMemory(src, addr, x.n)
	switch {
	case st != ucs.OK:
		return st
	case b != nil:
	case e.copies.state == copiesAllowed && e.pid == 0:
		e.refuseCalls(errNoPID)
		return ucs.Unsupported
	case e.copies.state != copiesAllowed:
		return ucs.Unsupported
	}
	x.addr, x.src, x.mapped, x.done = addr, src, b != nil, c.done.Load()
	several := x.n > pieceSize
	if several {
		x.dstRegion = e.share(x.mem)
		if e.copies.state == copiesAllowed {
			x.guard = e.copies.guardAddress()
		}
		c.dst, c.want, c.guard, c.dstRegion = addressOfBytes(x.dst), uint64(len(x.dst)), x.guard, x.dstRegion
	}
	total := piecesOf(uint64(len(x.dst)))
	n := x.run(total, 0)
	if !c.change(s, s&^stepMask|entryCopying+copyState(n)*peersPiece) {
		return ucs.Unsupported
	}
	x.entry, x.own = c, n
	if several && n < total && e.f.copies&copiesByBoth != 0 {
		t.active().Store(uint64(i + 1))
	}
	return ucs.OK
}

// run returns the number of adjacent pieces to claim.
func (x *fetch) run(total uint64, s copyState) uint64 {
	switch {
	case x.alone:
		return total
	case x.mapped:
		return 1
	}
	return runOf(total, s.peers(), total-s.pieces())
}

// revoke has no further piece of the fetch copied, which ends with st.
func (x *fetch) revoke(st uct.Status) {
	if x.claimed > 0 {
		return
	}
	if x.result = st; x.entry == nil {
		return
	}
	s := x.entry.load()
	for s.step() == entryCopying && s.belongs(x.id) && !x.entry.change(s, entryFree) {
		s = x.entry.load()
	}
	if s.step() == entryCopying && s.belongs(x.id) { // otherwise the owner has withdrawn it, and copies no piece
		x.claimed, x.revokedAt = s.pieces(), ucs.Now()
	}
}

// ending returns the status of a fetch that was revoked, InProgress while the peer may be copying a piece of it.
func (x *fetch) ending(e *ep) uct.Status {
	switch {
	case x.settle(e, 0):
		return x.result
	case ucs.Now().Sub(x.revokedAt) < e.f.d.drainTime():
		return ucs.InProgress
	}
	return ucs.BufferExposed
}

// end revokes the fetch, whose connection ends, and waits until the peer copies no piece of it. It returns the
// status of the fetch.
func (x *fetch) end(e *ep) uct.Status {
	if x.revoke(ucs.Canceled); !x.settle(e, e.f.d.drainTime()) {
		return ucs.BufferExposed
	}
	return x.result
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
		switch {
		case e.pidfd >= 0 && hungUp(e.pidfd, unix.POLLIN), e.pidfd < 0 && e.sock != nil && hungUp(e.sock.FD(), 0):
			return true
		case x.dstRegion == (regionRef{}) && platform.Stopped(e.pid):
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
	switch {
	case b != nil && !copyAcross(p, b):
		return ucs.RemoteAccess
	case st != ucs.OK || b != nil:
		return st
	case e.pid == 0: // the region is not mapped any more
		return ucs.Unsupported
	case !e.peerRuns():
		return ucs.Canceled
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
		e.refuseCalls(err)
	}
	return ucs.Unsupported
}

// errNoPID: the peer has no process id here, or none that cannot become another process's unnoticed.
var errNoPID = errors.New("the peer is in another pid namespace, or the system has no pidfd of it")

// refuseCalls has further messages of the peer that are not in mapped memory go through the ring, because of err.
func (e *ep) refuseCalls(err error) {
	e.copies.state = copiesMapped
	e.f.d.logf("messages are copied through the ring", err)
}

// aliveFor is how long the peer's process is taken to be alive after a check. Within this time the
// kernel does not give its process id to another process.
const aliveFor = time.Millisecond

// peerRuns reports whether the peer's process has not ended, so that its id is not that of another one. It is called
// before each system call that copies.
func (e *ep) peerRuns() bool {
	if e.pidfd < 0 { // it is this process, or is not accessed by its id
		return true
	}
	now := ucs.Now()
	if now.Sub(e.copies.checkedAt) < aliveFor {
		return true
	}
	if hungUp(e.pidfd, unix.POLLIN) {
		return false
	}
	e.copies.checkedAt = now
	return true
}
