//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import "github.com/goucx/goucx/verbs"

// stub is a provider that does nothing: a queue pair that takes all requests, an empty queue
// and one that is always full. The tests measure with it what a crossing costs; the C code is here because
// tests cannot hold any.
type stub struct {
	qp          *qp
	empty, full *cq
}

// newStub makes one. single: one goroutine at a time uses it, as under a thread domain.
func newStub(single bool) *stub {
	s := &stub{qp: &qp{}, empty: &cq{}, full: &cq{}}
	s.qp.c = C.struct_goucx_qp{
		qp: C.goucx_stub_qp(), max_inline: 220, ops: opsRC, max_send_sge: verbs.MaxSGE, max_recv_sge: verbs.MaxSGE, can_send: 1, can_recv: 1,
	}
	s.empty.c.cq, s.full.c.cq = C.goucx_stub_cq(0), C.goucx_stub_cq(1)
	if single {
		s.qp.c.gate.single, s.empty.c.gate.single, s.full.c.gate.single = 1, 1, 1
	}
	return s
}

func (s *stub) close() { C.goucx_stub_free(s.qp.c.qp, s.empty.c.cq, s.full.c.cq) }

// fail has the device of the stub fail.
func (s *stub) fail() {
	d := &device{qps: map[*qp]struct{}{s.qp: {}}, cqs: map[*cq]struct{}{s.empty: {}, s.full: {}}}
	d.fail()
}

// closeQP and closeFull close the gates as Close does.
func (s *stub) closeQP()   { C.goucx_close_gate(&s.qp.c.gate) }
func (s *stub) closeFull() { C.goucx_close_gate(&s.full.c.gate) }

// crossing is an empty call of C.
func crossing() { C.goucx_nothing() }
