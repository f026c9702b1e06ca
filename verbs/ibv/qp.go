//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// qp is a queue pair.
type qp struct {
	d      *device
	domain *pd
	c      C.struct_goucx_qp

	typ        verbs.QPType
	num        verbs.QPN
	send, recv *cq
	srq        *srq

	ctl    sync.Mutex   // serialises Modify, Query and Close, and guards the rest
	attr   verbs.QPAttr // as modified
	closed bool
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
	ops, ok := opsOf[c.Type]
	if !ok {
		return fail(fmt.Errorf("type %d: %w", c.Type, ucs.ErrInvalid))
	}
	send, err := ownObject[*cq](d, "send CQ", c.SendCQ)
	if err != nil {
		return fail(err)
	}
	recv, err := ownObject[*cq](d, "receive CQ", c.RecvCQ)
	if err != nil {
		return fail(err)
	}
	shared, err := ownObjectOrNil[*srq](d, "SRQ", c.SRQ)
	if err != nil {
		return fail(err)
	}
	a := &c.Caps
	if shared != nil {
		a.MaxRecv, a.MaxRecvSGE = 0, 0 // the SRQ has its own sizes
	}
	for _, l := range []struct {
		name        string
		asked, most int
	}{
		{"MaxSend", a.MaxSend, d.attr.MaxQPWR},
		{"MaxRecv", a.MaxRecv, d.attr.MaxQPWR},
		{"MaxSendSGE", a.MaxSendSGE, d.attr.MaxSGE},
		{"MaxRecvSGE", a.MaxRecvSGE, d.attr.MaxSGE},
		{"MaxInline", a.MaxInline, d.attr.MaxInline},
	} {
		if l.asked < 0 || l.asked > l.most {
			return fail(fmt.Errorf("%s %d, want 0 to %d: %w", l.name, l.asked, l.most, ucs.ErrInvalid))
		}
	}
	q := &qp{d: d, domain: p, typ: c.Type, send: send, recv: recv, srq: shared}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.admit(kindQP); err != nil {
		return fail(err)
	}
	if err := q.create(&c, ops); err != nil {
		p.release(kindQP)
		return fail(err)
	}
	send.users++
	recv.users++
	if shared != nil {
		shared.users++
	}
	d.qps[q] = struct{}{}
	d.events.add(q.pointer(), q)
	return q, nil
}

// create creates the queue pair of libibverbs. The caller holds d.mu.
func (q *qp) create(c *verbs.QPConfig, ops C.uint32_t) error {
	a := C.struct_ibv_qp_init_attr{send_cq: q.send.c.cq, recv_cq: q.recv.c.cq, qp_type: uint32(c.Type)}
	if q.srq != nil {
		a.srq = q.srq.c.srq
	}
	if c.SignalAll {
		a.sq_sig_all = 1
	}
	a.cap = C.struct_ibv_qp_cap{
		max_send_wr: C.uint32_t(max(1, c.Caps.MaxSend)), max_recv_wr: C.uint32_t(c.Caps.MaxRecv),
		max_send_sge: C.uint32_t(max(1, c.Caps.MaxSendSGE)), max_recv_sge: C.uint32_t(c.Caps.MaxRecvSGE), max_inline_data: C.uint32_t(c.Caps.MaxInline),
	}
	if q.srq == nil {
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
	q.c.max_inline, q.c.ops = C.uint32_t(granted.MaxInline), ops
	q.c.max_send_sge, q.c.max_recv_sge = C.uint8_t(granted.MaxSendSGE), C.uint8_t(granted.MaxRecvSGE)
	if q.typ == verbs.UD {
		q.c.datagrams = 1
	}
	if q.domain.td != nil {
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
	if s >= verbs.StateInit && q.srq == nil {
		q.c.can_recv = 1
	}
}

// purge removes the completions of the queue pair, which generates no more.
func (q *qp) purge() {
	q.send.purge(q.num)
	if q.recv != q.send {
		q.recv.purge(q.num)
	}
}

// Close destroys the queue pair. It waits for posts that are inside libibverbs, and for the
// program to acknowledge the events of the queue pair.
func (q *qp) Close() error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.closed {
		return nil
	}
	C.goucx_close_gate(&q.c.gate)
	d := q.d
	d.events.remove(q.pointer(), q)
	d.mu.Lock()
	defer d.mu.Unlock()
	q.closed = true
	delete(d.qps, q)
	d.closedCalls[cntQPCalls] += uint64(q.c.gate.calls)
	q.domain.release(kindQP)
	q.send.users--
	q.recv.users--
	if q.srq != nil {
		q.srq.users--
	}
	code := C.ibv_destroy_qp(q.c.qp)
	q.purge()
	q.c.qp = nil
	if code != 0 && !d.gone.Load() {
		return fmt.Errorf("close queue pair %#x: %w", uint32(q.num), returned(code))
	}
	return nil
}
