package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// copies is what a connection has of copies.
type copies struct {
	state     copiesState
	own, peer copyTable
	checkedAt ucs.Time // the peer's process was alive
}

// copiesState says whether the connection's messages may be copied from memory to memory.
type copiesState uint8

const (
	copiesAllowed copiesState = iota
	copiesRefused             // the peer does not read COPY_TABLE, or this side may not access its memory
)

var _ uct.Exposer = (*ep)(nil)

// Expose: see uct.Exposer.
func (e *ep) Expose(id uint64, buf []byte, _ uct.Mem) uct.Status {
	t := &e.copies.own
	if t.seg == nil {
		if st := e.makeCopyTable(); st != ucs.OK {
			return st
		}
	}
	c := t.free(id)
	if c == nil || len(buf) == 0 || e.status != ucs.OK {
		return ucs.NoResource
	}
	c.id, c.addr, c.length = id, addressOfBytes(buf), uint64(len(buf))
	c.state.Store(uint64(generation(id) | entryExposed))
	return ucs.OK
}

// Withdraw: see uct.Exposer.
func (e *ep) Withdraw(id uint64) uct.Status {
	if e.copies.own.seg == nil {
		return ucs.OK
	}
	c := e.copies.own.find(id)
	if c == nil {
		return ucs.OK
	}
	s := c.load()
	for !c.change(s, entryFree) { // the peer has claimed a piece
		s = c.load()
	}
	if s.step() == entryCopied {
		return ucs.Busy
	}
	return ucs.OK
}

// makeCopyTable makes the copy table and sends it to the peer.
func (e *ep) makeCopyTable() uct.Status {
	switch {
	case e.copies.state == copiesRefused:
		return ucs.Unsupported
	case e.M.State() != machine.StateOpen || e.Life != conn.Open || e.peerPage == nil || e.sock == nil || e.pid == 0:
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
		e.copies.own.seg = seg
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

// release unmaps the tables.
func (x *copies) release() (err error) {
	for _, t := range []*copyTable{&x.own, &x.peer} {
		if t.seg != nil {
			err = errors.Join(err, t.seg.Close())
			t.seg = nil
		}
	}
	return err
}
