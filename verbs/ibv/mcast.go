//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// AttachMulticast makes the queue pair receive the datagrams to group.
func (q *qp) AttachMulticast(group verbs.GID) error {
	attach := func(c *C.struct_ibv_qp, g *C.union_ibv_gid) C.int { return C.ibv_attach_mcast(c, g, 0) }
	return q.multicast("attach to", group, attach, func() {
		if q.groups == nil {
			q.groups = map[verbs.GID]bool{}
		}
		q.groups[group] = true
	})
}

// DetachMulticast undoes AttachMulticast.
func (q *qp) DetachMulticast(group verbs.GID) error {
	detach := func(c *C.struct_ibv_qp, g *C.union_ibv_gid) C.int { return C.ibv_detach_mcast(c, g, 0) }
	return q.multicast("detach from", group, detach, func() { delete(q.groups, group) })
}

// multicast calls do, and then done.
func (q *qp) multicast(what string, group verbs.GID, do func(*C.struct_ibv_qp, *C.union_ibv_gid) C.int, done func()) error {
	fail := func(err error) error { return fmt.Errorf("%s multicast group %v: %w", what, group.Addr(), err) }
	switch {
	case q.typ != verbs.UD:
		return fail(fmt.Errorf("a queue pair of type %v: %w", q.typ, ucs.ErrUnsupported))
	case !group.Addr().IsMulticast():
		return fail(fmt.Errorf("no multicast address: %w", ucs.ErrInvalid))
	}
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.closed {
		return fail(ucs.ErrClosed)
	}
	g := C.union_ibv_gid(group)
	if code := do(q.c.qp, &g); code != 0 {
		return fail(returned(code))
	}
	done()
	return nil
}
