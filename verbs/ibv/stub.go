//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

// stub is a provider that does nothing: a queue pair that takes all requests, an empty queue
// and one that is always full. The tests measure with it what a crossing costs; the C code is here because
// tests cannot hold any.
type stub struct {
	qp          *qp
	empty, full *cq
}

func newStub() *stub {
	return &stub{qp: &qp{c: C.goucx_stub_qp()}, empty: &cq{c: C.goucx_stub_cq(0)}, full: &cq{c: C.goucx_stub_cq(1)}}
}

func (s *stub) close() { C.goucx_stub_free(s.qp.c, s.empty.c, s.full.c) }

// crossing is an empty call of C.
func crossing() { C.goucx_nothing() }
