package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// copies is what a connection has of copies.
type copies struct {
	state     copiesState
	checkedAt ucs.Time // the peer's process was alive

	// As the owner of exposed memory.
	own     copyTable
	mine    []exposure // by entry
	exposed int        // entries in use
	writes  bool       // this side may write to the peer's memory

	shared regions        // of this side
	mapped regions        // of the peer
	keys   *shmem.Segment // the key table of the peer's domain; nil if mapped is empty

	// As the peer of such an owner.
	peer    copyTable
	fetches []fetch // oldest first
	// guard is a page that the owner writes together with each piece, before it. Without the page the write
	// fails, so that an owner that was stopped after a claim does not write to a buffer that is no longer
	// fetched.
	guard []byte
}

// exposure is what the owner of an entry knows of it. The peer can change all of the entry.
type exposure struct {
	buf []byte // nil: the entry is free
	id  uint64
}

// copiesState says whether the connection's messages may be copied from memory to memory.
type copiesState uint8

const (
	copiesAllowed copiesState = iota
	copiesMapped              // only of memory that is mapped: the system does not permit other copies, or the settings
	copiesRefused             // the peer does not read COPY_TABLE
)

var _ uct.Exposer = (*ep)(nil)

// Expose: see uct.Exposer.
func (e *ep) Expose(id uint64, buf []byte, m uct.Mem) uct.Status {
	x := &e.copies
	if x.own.seg == nil {
		if st := e.makeCopyTable(); st != ucs.OK {
			return st
		}
	}
	k := 0
	for k < entryProbes && x.mine[index(id, k)].buf != nil {
		k++
	}
	if k == entryProbes || len(buf) == 0 || len(buf) > maxPieces*pieceSize || e.status != ucs.OK {
		return ucs.NoResource
	}
	i := index(id, k)
	c := x.own.at(i)
	c.id, c.addr, c.length, c.src = id, addressOfBytes(buf), uint64(len(buf)), e.share(m)
	x.mine[i] = exposure{buf, id}
	cpu.StoreRelease(&c.state, uint64(generation(id)|entryExposed))
	if x.exposed++; x.exposed == 1 && e.f.copies&copiesByBoth != 0 {
		e.f.exposing = append(e.f.exposing, e)
		e.f.needPass()
	}
	return ucs.OK
}

// FetchesNow: see uct.Exposer.
func (e *ep) FetchesNow() bool {
	x := &e.copies
	if x.own.seg == nil && e.makeCopyTable() != ucs.OK {
		return false
	}
	return x.own.reads().Load() == 1
}

// Withdraw: see uct.Exposer.
func (e *ep) Withdraw(id uint64) uct.Status {
	if c := e.forget(id); c != nil {
		if s := copyState(c.state.Swap(uint64(entryFree))); s.belongs(id) && s.step() == entryCopied {
			return ucs.Busy
		}
	}
	return ucs.OK
}

// Fetched: see uct.Exposer. The entry is written when it is used again: the peer, which wrote to it last, has its line.
func (e *ep) Fetched(id uint64) { e.forget(id) }

// forget ends this side's part of exposure id. It returns the entry, nil if there is none.
func (e *ep) forget(id uint64) *copyEntry {
	x := &e.copies
	if x.own.seg == nil {
		return nil
	}
	for k := range entryProbes {
		i := index(id, k)
		if x.mine[i].buf == nil || x.mine[i].id != id {
			continue
		}
		x.mine[i] = exposure{}
		if x.exposed--; x.exposed == 0 {
			e.f.exposing = without(e.f.exposing, e)
		}
		return x.own.at(i)
	}
	return nil
}

// without removes e from list, keeping the order.
func without(list []*ep, e *ep) []*ep {
	for i := range list {
		if list[i] == e {
			copy(list[i:], list[i+1:])
			list[len(list)-1] = nil
			return list[:len(list)-1]
		}
	}
	return list
}

// makeCopyTable makes the copy table and sends it to the peer.
func (e *ep) makeCopyTable() uct.Status {
	switch {
	case e.copies.state == copiesRefused:
		return ucs.Unsupported
	case e.M.State() != machine.StateOpen || e.Life != conn.Open || e.peerPage == nil || e.sock == nil:
		return ucs.NoResource
	}
	seg, err := shmem.Create("goucx-copies", copyTableSize)
	if err == nil {
		if err = seg.Populate(); err == nil {
			probe := (&copyTable{seg}).probe()
			probe.Store(addressOfBytes(seg.Bytes()) + probeOffset)
			err = e.sock.Send(e.f.newConnMsg(kindCopyTable, e.Slot()).append(nil), seg.FD())
		}
		if err == nil {
			err = seg.CloseFD()
		}
		if err != nil {
			err = errors.Join(err, seg.Close())
		}
	}
	if err != nil {
		e.f.d.logSend("make a copy table", err)
		return ucs.NoResource
	}
	e.copies.own.seg, e.copies.mine = seg, make([]exposure, numEntries)
	return ucs.OK
}

// handleCopyTable maps the peer's copy table. It owns fds.
func (e *ep) handleCopyTable(fds []int) error {
	if len(fds) != 1 || e.copies.peer.seg != nil {
		shmem.CloseFDs(fds...)
		return fmt.Errorf("COPY_TABLE with %d descriptors does not fit here: %w", len(fds), ucs.ErrInvalid)
	}
	seg, err := mapGranted(&fds[0], copyTableSize)
	if err != nil {
		if shmem.CloseFDs(fds[0]); lacksMemory(err) {
			return nil
		}
		return fmt.Errorf("peer's copy table: %w", err)
	}
	e.copies.peer.seg = seg
	if e.copies.state == copiesAllowed && e.pid != 0 {
		// What can be read here can be read of all memory of the process.
		var b [8]byte
		at := e.copies.peer.probe().Load()
		if _, err := shmem.ProcessRead(e.pid, b[:], uintptr(at)); err == nil && binary.NativeEndian.Uint64(b[:]) == at {
			e.copies.peer.reads().Store(1)
		}
	}
	return nil
}

// copyTurns is the number of connections of which a pass copies a piece, in each direction.
const copyTurns = 4

// help copies a piece of the messages that peers fetch from this side. It returns their number.
func (f *iface) help() (n int) {
	for range min(len(f.exposing), copyTurns) {
		f.nextExposing = (f.nextExposing + 1) % len(f.exposing)
		n += f.exposing[f.nextExposing].help()
	}
	return n
}

// help copies a piece of the message that the peer is fetching. It returns the number of pieces.
func (e *ep) help() int {
	x := &e.copies
	i := int(x.own.active().Load()) - 1
	if i < 0 || i >= numEntries || x.mine[i].buf == nil || e.status != ucs.OK {
		return 0
	}
	c, buf, id := x.own.at(i), x.mine[i].buf, x.mine[i].id
	s := c.load()
	end, addr, guard := min(c.want, uint64(len(buf))), c.dst, c.guard
	total := piecesOf(end)
	left := total - s.owners()
	if s.step() != entryCopying || !s.belongs(id) || left <= s.peers() || left > maxPieces {
		return 0
	}
	first := left - 1
	dst, st := e.peerMemory(c.dstRegion, addr+first*pieceSize, min(end-first*pieceSize, pieceSize))
	switch {
	case st != ucs.OK || dst == nil && (guard == 0 || e.f.copies&copiesByWrite == 0 || !e.peerRuns()):
		return 0
	case dst == nil:
		if !x.writes { // a piece that is claimed must be copied
			if _, err := shmem.ProcessWrite(e.pid, []byte{0}, uintptr(guard)); e.pid == 0 || err != nil {
				return 0
			}
			x.writes = true
		}
		first = left - runOf(total, s.owners(), left-s.peers())
	}
	n := left - first
	if !c.change(s, s+copyState(n)*ownersPiece) {
		return 0
	}
	fault.At(fault.Help)
	src := buf[first*pieceSize : min(left*pieceSize, end)]
	copied := false
	if dst != nil {
		copied = copyAcross(dst, src)
	} else {
		copied = shmem.ProcessWriteGuarded(e.pid, uintptr(guard), src, uintptr(addr+first*pieceSize)) == nil
	}
	if !copied {
		c.failed.Store(id)
	}
	c.done.Add(n)
	fault.At(fault.HelpCopied)
	return 1
}

// copyAcross copies src to dst, of which one is memory of the peer. It returns false if a page of them is not there: the
// program has unmapped its buffer, or truncated the file that the buffer maps.
func copyAcross(dst, src []byte) (copied bool) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if !copied {
			recover() //nolint:errcheck // the panic of the fault
		}
	}()
	copy(dst, src)
	return true
}

// releaseCopies frees the tables. The peer copies no more to the buffers of fetches that are still in progress.
func (e *ep) releaseCopies() (err error) {
	x := &e.copies
	for i := range x.fetches {
		if x.fetches[i].end(e) == ucs.BufferExposed {
			e.f.d.logf("a peer may still write to the buffer of a receive that has ended", ucs.ErrBufferExposed)
		}
	}
	if x.exposed > 0 {
		e.f.exposing = without(e.f.exposing, e)
	}
	if len(x.fetches) > 0 {
		e.f.fetching = without(e.f.fetching, e)
	}
	e.f.mapping = without(e.f.mapping, e)
	for i := range x.mapped.list {
		x.mapped.list[i].unmap()
	}
	if x.keys != nil {
		err = x.keys.Close()
	}
	if x.guard != nil {
		err = errors.Join(err, mapped.Unmap(x.guard))
	}
	for _, t := range []*copyTable{&x.own, &x.peer} {
		if t.seg != nil {
			err = errors.Join(err, t.seg.Close())
		}
	}
	*x = copies{state: copiesRefused}
	return err
}
