//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// qp is a queue pair.
type qp struct {
	d      *device
	domain *pd
	c      C.struct_goucx_qp

	typ    verbs.QPType
	num    verbs.QPN
	queues objects.Queues[*cq, *srq]

	ctl    sync.Mutex   // serialises Modify, Query and Close, and guards the rest
	attr   verbs.QPAttr // as modified
	closed bool
	groups map[verbs.GID]bool // that it is attached to
}

// Work requests of each type of queue pair; bindings go by a call of their own.
const (
	opsUD = 1<<verbs.OpSend | 1<<verbs.OpSendImm
	opsUC = opsUD | 1<<verbs.OpWrite | 1<<verbs.OpWriteImm | 1<<verbs.OpSendInv | 1<<verbs.OpLocalInv
	opsRC = opsUC | 1<<verbs.OpRead | 1<<verbs.OpCompareSwap | 1<<verbs.OpFetchAdd
)

var opsOf = map[verbs.QPType]C.uint32_t{verbs.RC: opsRC, verbs.UC: opsUC, verbs.UD: opsUD}

// CreateQP creates a queue pair.
//
// Errors: ucs.ErrInvalid for sizes beyond the device; ErrMemlock.
func (p *pd) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	fail := func(err error) (verbs.QP, error) { return nil, fmt.Errorf("create queue pair: %w", err) }
	d := p.d
	queues, err := objects.QueuesOf[*cq, *srq](d, &d.attr, &c)
	if err != nil {
		return fail(err)
	}
	q := &qp{d: d, domain: p, typ: c.Type, queues: queues}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := queues.CheckOpen(); err != nil {
		return fail(err)
	}
	if err := p.admit(objects.QP); err != nil {
		return fail(err)
	}
	if err := q.create(&c); err != nil {
		p.Release(objects.QP)
		return fail(err)
	}
	queues.Add()
	d.qps[q] = struct{}{}
	d.events.add(q.pointer(), q)
	return q, nil
}

// create creates the queue pair of libibverbs. The caller holds d.mu.
func (q *qp) create(c *verbs.QPConfig) error {
	a := C.struct_ibv_qp_init_attr{send_cq: q.queues.Send.c.cq, recv_cq: q.queues.Recv.c.cq, qp_type: uint32(c.Type)}
	if q.queues.SRQ != nil {
		a.srq = q.queues.SRQ.c.srq
	}
	if c.SignalAll {
		a.sq_sig_all = 1
	}
	a.cap = C.struct_ibv_qp_cap{
		max_send_wr: C.uint32_t(max(1, c.Caps.MaxSend)), max_recv_wr: C.uint32_t(c.Caps.MaxRecv),
		max_send_sge: C.uint32_t(max(1, c.Caps.MaxSendSGE)), max_recv_sge: C.uint32_t(c.Caps.MaxRecvSGE), max_inline_data: C.uint32_t(c.Caps.MaxInline),
	}
	if q.queues.SRQ == nil {
		a.cap.max_recv_wr, a.cap.max_recv_sge = max(1, a.cap.max_recv_wr), max(1, a.cap.max_recv_sge)
	}
	made, err := C.ibv_create_qp(q.domain.c, &a)
	if made == nil {
		return memoryFault(err)
	}
	granted := verbs.QPCaps{
		MaxSend: int(a.cap.max_send_wr), MaxRecv: int(a.cap.max_recv_wr),
		MaxSendSGE: min(int(a.cap.max_send_sge), verbs.MaxSGE), MaxRecvSGE: min(int(a.cap.max_recv_sge), verbs.MaxSGE), MaxInline: int(a.cap.max_inline_data),
	}
	q.attr.Caps, q.num = granted, verbs.QPN(made.qp_num)
	q.c.qp, q.c.ahs, q.c.domain = made, q.d.ahs, q.domain.protection.key()
	q.c.max_inline, q.c.ops = C.uint32_t(granted.MaxInline), opsOf[c.Type]
	q.c.max_send_sge, q.c.max_recv_sge = C.uint8_t(granted.MaxSendSGE), C.uint8_t(granted.MaxRecvSGE)
	if q.typ == verbs.UD {
		q.c.datagrams = 1
	}
	if q.domain.single() {
		q.c.gate.single = 1
	}
	return nil
}

// QPN returns the number.
func (q *qp) QPN() verbs.QPN { return q.num }

// Query returns the attributes. The state and the sizes are those of the kernel: a queue pair
// enters the error state by itself.
func (q *qp) Query() verbs.QPAttr {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	return q.queryLocked()
}

func (q *qp) queryLocked() verbs.QPAttr {
	if q.closed {
		return q.attr
	}
	var a C.struct_ibv_qp_attr
	var i C.struct_ibv_qp_init_attr
	if C.ibv_query_qp(q.c.qp, &a, C.IBV_QP_STATE, &i) == 0 {
		q.setState(verbs.QPState(a.qp_state))
	}
	return q.attr
}

// setState keeps posts out in the states that refuse them: providers differ in whether they look
// at the state, and in the error.
func (q *qp) setState(s verbs.QPState) {
	q.attr.State = s
	q.attr.CurState = s
	q.c.can_send, q.c.can_recv = 0, 0
	if s >= verbs.StateRTS {
		q.c.can_send = 1
	}
	if s >= verbs.StateInit && q.queues.SRQ == nil {
		q.c.can_recv = 1
	}
	if q.d.gone.Load() { // after the stores: device.fail looks the other way round
		q.c.can_send, q.c.can_recv = 0, 0
	}
}

// purge removes the completions of the queue pair, which generates no more.
func (q *qp) purge() {
	q.queues.Send.purge(q.num)
	if q.queues.Recv != q.queues.Send {
		q.queues.Recv.purge(q.num)
	}
}

// Close destroys the queue pair. It waits for posts that are inside libibverbs, and for the
// program to acknowledge the events of the queue pair.
func (q *qp) Close() error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	switch {
	case q.closed:
		return nil
	case len(q.groups) > 0:
		return fmt.Errorf("close queue pair %#x: it is in %d multicast groups: %w", uint32(q.num), len(q.groups), ucs.ErrBusy)
	}
	C.goucx_close_gate(&q.c.gate)
	d := q.d
	d.events.remove(q.pointer(), q)
	d.mu.Lock()
	defer d.mu.Unlock()
	q.closed = true
	delete(d.qps, q)
	d.closedCalls[cntQPCalls] += uint64(q.c.gate.calls)
	q.domain.Release(objects.QP)
	q.queues.Release()
	err := d.freed(C.ibv_destroy_qp(q.c.qp))
	q.purge()
	q.c.qp = nil
	if err != nil {
		return fmt.Errorf("close queue pair %#x: %w", uint32(q.num), err)
	}
	return nil
}
