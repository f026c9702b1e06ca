package main

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goucx/goucx/verbs"
)

const (
	grhSize  = 40         // bytes before the payload of a received datagram
	udQKey   = 0x11111111 // of all the programs
	pageSize = 4096

	// slotMemory bounds the memory of the receives and READ results of a run.
	slotMemory = 32 << 20
	// minSlots is the least number of slots of a queue pair, however long the messages are.
	minSlots = 4

	// untouched is the content of memory that the peer has not written.
	untouched = 0xa5
)

// lane is a queue pair with its progress. Messages are counted from 0.
type lane struct {
	index  int
	qp     verbs.QP
	local  address
	remote address
	ah     verbs.AHID // of the peer, for datagrams

	posted, sent, received int
	// seen holds the first messages of a foreign peer, or the first results of its memory: later
	// ones repeat.
	seen [][]byte
	// atomics are the values that the words of the peer's memory have, in order of their addresses.
	atomics []atomicWord
}

// atomicWord is a word of the peer's memory, as this side's operations leave it.
type atomicWord struct {
	known bool
	value uint64
}

// endpoint has the verbs objects of a run.
type endpoint struct {
	plan *plan
	ctx  verbs.Context
	port verbs.PortAttr
	gid  verbs.GID
	sgid int

	pd      verbs.PD
	channel verbs.CompChannel // nil: polled
	cq      verbs.CQ          // of sends and receives
	srq     verbs.SRQ         // nil: each queue pair has its receives
	lanes   []*lane
	byQPN   map[verbs.QPN]*lane

	out   verbs.MR // the stream of this side, sent from
	slots verbs.MR // received into, and results of READs and atomics
	area  verbs.MR // memory that the peer accesses

	slotSize int // bytes of a slot
	rx, tx   int // receives, and sends, of a queue pair
	maxMTU   verbs.MTU
	mtu      verbs.MTU // of the path
	closers  []func() error
}

// openEndpoint opens the device and creates the objects. If it returns an error nothing is left.
func openEndpoint(p *plan) (e *endpoint, err error) {
	e = &endpoint{plan: p, byQPN: map[verbs.QPN]*lane{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.ctx, err = openDevice(p); err != nil {
		return e, err
	}
	e.closes(e.ctx.Close)
	if e.port, err = e.ctx.Port(1); err != nil {
		return e, fmt.Errorf("port 1: %w", err)
	}
	if e.maxMTU = min(e.port.ActiveMTU, verbs.MTU4096); p.mtu != 0 {
		if p.mtu > e.maxMTU {
			return e, fmt.Errorf("-m %v: the port carries %v: use a smaller MTU, or raise that of the interface", p.mtu, e.maxMTU)
		}
		e.maxMTU = p.mtu
	}
	if err = e.findGID(); err != nil {
		return e, err
	}
	if e.pd, err = e.ctx.AllocPD(); err != nil {
		return e, err
	}
	e.closes(e.pd.Close)
	return e, nil
}

// findGID finds the GID that the plan asks for.
func (e *endpoint) findGID() (err error) {
	if want := e.plan.gidIndex; want >= 0 || !e.plan.addr.IsValid() {
		e.sgid = max(want, 0)
		e.gid, err = e.ctx.GID(1, e.sgid)
		return err
	}
	for e.sgid = range e.port.GIDs {
		if e.gid, err = e.ctx.GID(1, e.sgid); err == nil && e.gid.Addr() == e.plan.addr.Unmap() {
			return nil
		}
	}
	return fmt.Errorf("no GID of the device is %v", e.plan.addr)
}

// closes adds a call to those of close.
func (e *endpoint) closes(f func() error) { e.closers = append(e.closers, f) }

// close closes everything, the last object first.
func (e *endpoint) close() error {
	var errs []error
	for len(e.closers) > 0 {
		last := len(e.closers) - 1
		errs = append(errs, e.closers[last]())
		e.closers = e.closers[:last]
	}
	return errors.Join(errs...)
}

// createQueues creates the queues and their queue pairs.
func (e *endpoint) createQueues() (err error) {
	p := e.plan
	e.slotSize = (p.size + 63 + grhSize) &^ 63
	fit := max(slotMemory/e.slotSize/p.qps, minSlots)
	e.rx, e.tx = min(p.rx, fit), p.tx
	if p.test.verb >= verbRead {
		e.tx = min(e.tx, fit)
	}
	if p.events {
		if e.channel, err = e.ctx.CreateCompChannel(); err != nil {
			return err
		}
		e.closes(e.channel.Close)
	}
	if e.cq, err = e.ctx.CreateCQ(verbs.CQConfig{Depth: p.qps*(e.rx+e.tx) + 1, Channel: e.channel}); err != nil {
		return err
	}
	e.closes(e.cq.Close)
	if p.srq {
		if e.srq, err = e.pd.CreateSRQ(verbs.SRQAttr{MaxWR: p.qps * e.rx, MaxSGE: 1}); err != nil {
			return err
		}
		e.closes(e.srq.Close)
	}
	for i := range p.qps {
		if err := e.addLane(i); err != nil {
			return fmt.Errorf("queue pair %d: %w", i, err)
		}
	}
	return nil
}

// addLane creates a queue pair in state INIT.
func (e *endpoint) addLane(i int) error {
	p := e.plan
	caps := verbs.QPCaps{MaxSend: e.tx, MaxSendSGE: 1, MaxInline: p.inline}
	if e.srq == nil {
		caps.MaxRecv, caps.MaxRecvSGE = e.rx, 1
	}
	qp, err := e.pd.CreateQP(verbs.QPConfig{Type: p.typ, SendCQ: e.cq, RecvCQ: e.cq, SRQ: e.srq, Caps: caps})
	if err != nil {
		return err
	}
	e.closes(qp.Close)
	a := verbs.QPAttr{State: verbs.StateInit, Port: 1, QKey: udQKey, Access: e.access()}
	mask := verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort
	if p.typ == verbs.UD {
		mask |= verbs.AttrQKey
	} else {
		mask |= verbs.AttrAccessFlags
	}
	if err := qp.Modify(&a, mask); err != nil {
		return err
	}
	l := &lane{index: i, qp: qp}
	l.local = address{LID: e.port.LID, OutReads: 1, QPN: qp.QPN(), PSN: randomPSN(), GID: e.gid}
	if p.test.verb >= verbRead {
		l.local.OutReads = uint16(min(e.ctx.Attr().MaxQPRdAtomic, 255))
	}
	e.lanes, e.byQPN[l.local.QPN] = append(e.lanes, l), l
	return nil
}

// access returns what the peer may do with the area.
func (e *endpoint) access() verbs.Access {
	switch e.plan.test.verb {
	case verbWrite:
		return verbs.LocalWrite | verbs.RemoteWrite
	case verbRead:
		return verbs.RemoteRead
	case verbAtomic:
		return verbs.LocalWrite | verbs.RemoteAtomic
	default:
		return 0
	}
}

// randomPSN returns a PSN that others cannot guess.
func randomPSN() verbs.PSN {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return verbs.PSN(binary.NativeEndian.Uint32(b[:]) & 0xffffff)
}

// register registers n bytes, aligned to eight.
func (e *endpoint) register(n int, access verbs.Access) (verbs.MR, error) {
	mr, err := e.pd.Register(make([]byte, (n+pageSize)&^(pageSize-1)), verbs.MRConfig{Access: access})
	if err != nil {
		return nil, err
	}
	e.closes(mr.Close)
	return mr, nil
}

// connect moves a queue pair to RTS with the peer at l.remote.
func (e *endpoint) connect(l *lane) error {
	if l.remote.GID.Addr().Is4() != e.gid.Addr().Is4() {
		return fmt.Errorf("the peer's GID is %v, this side's %v: choose GIDs of one IP version (-x, -addr)", l.remote.GID.Addr(), e.gid.Addr())
	}
	av := verbs.AHAttr{DGID: l.remote.GID, DLID: l.remote.LID, SGIDIndex: e.sgid, Port: 1, HopLimit: 64}
	if e.plan.typ == verbs.UD {
		ah, err := e.pd.CreateAH(av)
		if err != nil {
			return err
		}
		e.closes(ah.Close)
		l.ah = ah.ID()
	}
	remote := verbs.RemoteQP{AV: av, QPN: l.remote.QPN, PSN: l.remote.PSN, MTU: e.mtu, MaxRdAtomic: uint8(max(l.local.OutReads, 1))}
	reads := uint8(min(int(l.remote.OutReads), e.ctx.Attr().MaxQPInitRdAtomic, 255))
	local := verbs.QPAttr{SQPSN: l.local.PSN, MaxRdAtomic: max(reads, 1), MinRNRTimer: 12, Timeout: e.plan.timeout, RetryCnt: 7, RNRRetry: 7}
	var err error
	switch e.plan.typ {
	case verbs.RC:
		err = verbs.ConnectRC(l.qp, remote, local)
	case verbs.UC:
		err = verbs.ConnectUC(l.qp, remote, local)
	default:
		err = verbs.StartUD(l.qp, local)
	}
	if err != nil {
		return fmt.Errorf("queue pair %d: %w", l.index, err)
	}
	return nil
}
