package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
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
	bufs    [][]byte // by entry
	exposed int      // entries in use
	writes  bool     // this side may write to the peer's memory

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

// copiesState says whether the connection's messages may be copied from memory to memory.
type copiesState uint8

const (
	copiesAllowed copiesState = iota
	copiesMapped              // only of memory that is mapped: the system does not permit other copies
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
	for k < entryProbes && x.bufs[index(id, k)] != nil {
		k++
	}
	if k == entryProbes || len(buf) == 0 || e.status != ucs.OK {
		return ucs.NoResource
	}
	i := index(id, k)
	c := x.own.at(i)
	c.id, c.addr, c.length, c.src = id, addressOfBytes(buf), uint64(len(buf)), e.share(m)
	x.bufs[i] = buf
	c.state.Store(uint64(generation(id) | entryExposed))
	if x.exposed++; x.exposed == 1 {
		e.f.exposing = append(e.f.exposing, e)
		e.f.needPass()
	}
	return ucs.OK
}

// Withdraw: see uct.Exposer.
func (e *ep) Withdraw(id uint64) uct.Status {
	x := &e.copies
	for k := range entryProbes {
		i := index(id, k)
		if x.own.seg == nil || x.bufs[i] == nil || x.own.at(i).id != id {
			continue
		}
		x.bufs[i] = nil
		if x.exposed--; x.exposed == 0 {
			e.f.exposing = without(e.f.exposing, e)
		}
		c := x.own.at(i)
		s := c.load()
		for s.belongs(id) && !c.change(s, entryFree) { // the peer has claimed a piece
			s = c.load()
		}
		if s.belongs(id) && s.step() == entryCopied {
			return ucs.Busy
		}
		break
	}
	return ucs.OK
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
			err = e.sock.Send(e.f.newConnMsg(kindCopyTable, e.Slot()).append(nil), seg.FD())
		}
		if err == nil {
			err = seg.CloseFD()
		}
		if err != nil {
			err = errors.Join(err, seg.Close())
		}
	}
	switch {
	case err == nil:
		e.copies.own.seg, e.copies.bufs = seg, make([][]byte, numEntries)
		return ucs.OK
	case !errors.Is(err, shmem.ErrWouldBlock) && !errors.Is(err, unix.ETOOMANYREFS) && !errors.Is(err, unix.EPIPE):
		e.f.d.logf("make a copy table", err)
	}
	return ucs.NoResource
}

// handleCopyTable maps the peer's copy table. It owns fds.
func (e *ep) handleCopyTable(fds []int) error {
	if len(fds) != 1 || e.copies.peer.seg != nil {
		shmem.CloseFDs(fds...)
		return fmt.Errorf("COPY_TABLE with %d descriptors does not fit here: %w", len(fds), ucs.ErrInvalid)
	}
	seg, err := mapGranted(&fds[0], copyTableSize)
	if err != nil {
		shmem.CloseFDs(fds[0])
		return fmt.Errorf("peer's copy table: %w", err)
	}
	e.copies.peer.seg = seg
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
	if i < 0 || i >= numEntries || x.bufs[i] == nil || e.status != ucs.OK {
		return 0
	}
	c, buf := x.own.at(i), x.bufs[i]
	s := c.load()
	off, end, addr, guard := s.pieces()*pieceSize, min(c.want, uint64(len(buf))), c.dst, c.guard
	if s.step() != entryCopying || !s.belongs(c.id) || off >= end {
		return 0
	}
	src := buf[off:min(off+pieceSize, end)]
	dst, st := e.peerMemory(c.dstRegion, addr+off, uint64(len(src)))
	if st != ucs.OK || dst == nil && guard == 0 {
		return 0
	}
	if dst == nil && !x.writes { // a piece that is claimed must be copied
		if _, err := shmem.ProcessWrite(e.pid, []byte{0}, uintptr(guard)); e.pid == 0 || err != nil {
			return 0
		}
		x.writes = true
	}
	if !c.change(s, s+1) {
		return 0
	}
	fault.At(fault.Help)
	if dst != nil {
		copy(dst, src)
	} else if shmem.ProcessWriteGuarded(e.pid, uintptr(guard), src, uintptr(addr+off)) != nil {
		c.failed.Store(c.id)
	}
	c.done.Add(1)
	return 1
}

// releaseCopies frees the tables. The peer copies no more to the buffers of fetches that are still in progress.
func (e *ep) releaseCopies() (err error) {
	x := &e.copies
	for i := range x.fetches {
		x.fetches[i].end(e)
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
