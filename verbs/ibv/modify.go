//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Modify changes state and attributes. What is wrong with them is found here, by the transitions table
// and by the limits of the device: the kernel says EINVAL for all. AttrPeerFeatures has no effect.
//
// Errors: ucs.ErrUnreachable if the network has no route to AV.DGID.
func (q *qp) Modify(a *verbs.QPAttr, mask verbs.AttrMask) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	fail := func(err error) error { return fmt.Errorf("queue pair %#x: %w", uint32(q.num), err) }
	if q.closed {
		return fail(ucs.ErrClosed)
	}
	to, err := verbs.CheckModify(q.typ, q.queryLocked().State, a, mask)
	if err == nil {
		err = q.checkLimits(a, mask)
	}
	if err != nil {
		return fail(err)
	}
	want := *a
	want.MaxRdAtomic = uint8(min(int(a.MaxRdAtomic), q.d.attr.MaxQPInitRdAtomic))
	a = &want
	c := attrOf(a)
	if q.d.boundRetries {
		c.retry_cnt = min(c.retry_cnt, maxRetries)
	}
	if code := C.ibv_modify_qp(q.c.qp, &c, C.int(mask&^(verbs.AttrPeerFeatures|verbs.AttrCurState))); code != 0 {
		return fail(fmt.Errorf("modify to %v: %w", to, returned(code)))
	}
	if mask&verbs.AttrState != 0 && to == verbs.StateReset {
		q.attr = verbs.QPAttr{Caps: q.attr.Caps}
		q.purge()
	}
	q.attr.Apply(a, mask)
	q.setState(to)
	return nil
}

// The kernel's Soft-RoCE takes a retry count of 7 for no end: a connection with a peer that is gone would
// never fail. So it gets one less. Its vendor ID is that of no vendor.
//
// Source: Linux, drivers/infiniband/sw/rxe: rxe_comp.c (COMPST_ERROR_RETRY), rxe_param.h.
const (
	vendorRXE  = 0xffffff
	maxRetries = 6
)

// checkLimits refuses values beyond the device.
func (q *qp) checkLimits(a *verbs.QPAttr, mask verbs.AttrMask) error {
	d := q.d
	if mask&verbs.AttrAV != 0 {
		if err := d.checkAddress(&a.AV); err != nil {
			return fmt.Errorf("AV: %w", err)
		}
		if a.AV.DGID.Addr().IsMulticast() {
			return fmt.Errorf("AV: a connection to multicast group %v: %w", a.AV.DGID.Addr(), ucs.ErrInvalid)
		}
	}
	if mask&verbs.AttrPort != 0 {
		if err := d.checkPort(a.Port); err != nil {
			return err
		}
	}
	if mask&verbs.AttrPathMTU != 0 {
		p, err := d.queryPort(q.attr.Port)
		if err != nil {
			return err
		}
		if most := verbs.MTU(p.active_mtu); a.PathMTU > most {
			return fmt.Errorf("PathMTU of %d bytes, the port carries %d: %w", a.PathMTU.Bytes(), most.Bytes(), ucs.ErrInvalid)
		}
	}
	if n := d.attr.MaxQPRdAtomic; mask&verbs.AttrMaxDestRdAtomic != 0 && int(a.MaxDestRdAtomic) > n {
		return fmt.Errorf("MaxDestRdAtomic %d, want 0 to %d: %w", a.MaxDestRdAtomic, n, ucs.ErrInvalid)
	}
	if mask&verbs.AttrPKeyIndex != 0 {
		port := q.attr.Port
		if mask&verbs.AttrPort != 0 {
			port = a.Port
		}
		if _, err := d.PKey(port, int(a.PKeyIndex)); err != nil {
			return fmt.Errorf("PKeyIndex: %w", err)
		}
	}
	return nil
}

// attrOf translates attributes.
func attrOf(a *verbs.QPAttr) (c C.struct_ibv_qp_attr) {
	c.qp_state, c.cur_qp_state = uint32(a.State), uint32(a.CurState)
	if a.EnSQDAsyncNotify {
		c.en_sqd_async_notify = 1
	}
	c.path_mtu = uint32(a.PathMTU)
	c.qkey, c.rq_psn, c.sq_psn = C.uint32_t(a.QKey), C.uint32_t(a.RQPSN.Add(0)), C.uint32_t(a.SQPSN.Add(0))
	c.dest_qp_num, c.qp_access_flags = C.uint32_t(a.DestQPN), C.uint(a.Access)
	c.ah_attr = addressOf(&a.AV)
	c.pkey_index, c.port_num = C.uint16_t(a.PKeyIndex), C.uint8_t(a.Port)
	c.max_rd_atomic, c.max_dest_rd_atomic = C.uint8_t(a.MaxRdAtomic), C.uint8_t(a.MaxDestRdAtomic)
	c.min_rnr_timer, c.timeout = C.uint8_t(a.MinRNRTimer), C.uint8_t(a.Timeout)
	c.retry_cnt, c.rnr_retry = C.uint8_t(a.RetryCnt), C.uint8_t(a.RNRRetry)
	c.cap = C.struct_ibv_qp_cap{
		max_send_wr: C.uint32_t(a.Caps.MaxSend), max_recv_wr: C.uint32_t(a.Caps.MaxRecv), max_send_sge: C.uint32_t(a.Caps.MaxSendSGE),
		max_recv_sge: C.uint32_t(a.Caps.MaxRecvSGE), max_inline_data: C.uint32_t(a.Caps.MaxInline),
	}
	return c
}
