//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// ah is an address handle.
type ah struct {
	domain *pd // the domain that it was created in
	c      *C.struct_ibv_ah
	id     verbs.AHID
	closed bool // guarded by device.mu
}

// idSpace hands out the numbers of address handles: an index of a C table in the lower bits, above it
// a generation, so that a number is not valid again soon after its handle is closed.
type idSpace struct {
	free []uint32 // numbers of closed handles
	next uint32
}

const (
	ahBits = 20 // GOUCX_AH_CHUNK * GOUCX_AH_CHUNKS
	ahMost = 1 << ahBits
)

// alloc returns a number, none of which is 0.
func (s *idSpace) alloc() (uint32, bool) {
	if n := len(s.free); n > 0 && (n > 64 || s.next == ahMost-1) {
		id := s.free[0] + ahMost
		s.free = s.free[1:]
		return id, true
	}
	if s.next == ahMost-1 {
		return 0, false
	}
	s.next++
	return s.next, true
}

func (s *idSpace) release(id uint32) { s.free = append(s.free, id) }

// checkAddress refuses addresses that no peer has or that the device cannot use.
func (d *device) checkAddress(a *verbs.AHAttr) error {
	p, err := d.queryPort(a.Port)
	switch {
	case err != nil:
		return err
	case p.link_layer != C.IBV_LINK_LAYER_ETHERNET:
		return fmt.Errorf("port %d of RDMA device %q: %w", a.Port, d.info.Name, verbs.ErrInfiniBand)
	case a.SGIDIndex < 0 || a.SGIDIndex >= min(int(p.gid_tbl_len), maxGIDIndex+1):
		return fmt.Errorf("SGIDIndex %d of RDMA device %q, whose table has %d: %w", a.SGIDIndex, d.info.Name, p.gid_tbl_len, ucs.ErrInvalid)
	case a.FlowLabel >= 1<<20:
		return fmt.Errorf("FlowLabel %#x of more than 20 bits: %w", a.FlowLabel, ucs.ErrInvalid)
	case a.SL > 15:
		return fmt.Errorf("SL %d, want 0 to 15: %w", a.SL, ucs.ErrInvalid)
	case a.DGID == verbs.GID{}:
		return fmt.Errorf("no DGID: %w", ucs.ErrInvalid)
	}
	return nil
}

// addressOf translates an address. A soft device's port is not part of it: hardware sends to
// port 4791 only.
func addressOf(a *verbs.AHAttr) (c C.struct_ibv_ah_attr) {
	c.grh.dgid = a.DGID
	c.grh.flow_label = C.uint32_t(a.FlowLabel)
	c.grh.sgid_index = C.uint8_t(a.SGIDIndex)
	c.grh.hop_limit = C.uint8_t(a.HopLimit)
	c.grh.traffic_class = C.uint8_t(a.TrafficClass)
	c.sl = C.uint8_t(a.SL)
	c.is_global = 1
	c.port_num = C.uint8_t(a.Port)
	return c
}

// CreateAH creates an address handle.
//
// Errors: ucs.ErrUnreachable if the network has no route to the address.
func (p *pd) CreateAH(a verbs.AHAttr) (verbs.AH, error) {
	fail := func(err error) (verbs.AH, error) {
		return nil, fmt.Errorf("create address handle for %v: %w", a.DGID.Addr(), err)
	}
	d := p.d
	if err := d.checkAddress(&a); err != nil {
		return fail(err)
	}
	to := addressOf(&a)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.admit(objects.AH); err != nil {
		return fail(err)
	}
	c, err := C.ibv_create_ah(p.c, &to)
	if c == nil {
		p.Release(objects.AH)
		return fail(fault(err))
	}
	id, ok := d.ahIDs.alloc()
	if !ok || C.goucx_ahs_set(d.ahs, C.uint32_t(id), c, p.protection.key()) != 0 {
		C.ibv_destroy_ah(c)
		p.Release(objects.AH)
		return fail(fmt.Errorf("%d are open: %w", d.open.Open()[objects.AH], ucs.ErrNoResource))
	}
	return &ah{domain: p, c: c, id: verbs.AHID(id)}, nil
}

// CreateAHFromWC creates an address handle for the sender of a datagram.
func (p *pd) CreateAHFromWC(port uint8, wc *verbs.WC, grh []byte) (verbs.AH, error) {
	a, err := p.d.senderOf(port, wc, grh)
	if err != nil {
		return nil, fmt.Errorf("create address handle from a completion: %w", err)
	}
	return p.CreateAH(a)
}

// senderOf returns the sender's address.
func (d *device) senderOf(port uint8, wc *verbs.WC, grh []byte) (a verbs.AHAttr, err error) {
	if err := d.checkPort(port); err != nil {
		return a, err
	}
	if wc.Flags&verbs.WCGRH == 0 {
		return a, fmt.Errorf("no GRH: %w", ucs.ErrInvalid)
	}
	if len(grh) < grhLen {
		return a, fmt.Errorf("%d bytes, shorter than a GRH: %w", len(grh), ucs.ErrInvalid)
	}
	w := C.struct_ibv_wc{wc_flags: C.uint(wc.Flags), src_qp: C.uint32_t(wc.SrcQP)}
	var c C.struct_ibv_ah_attr
	if code, no := initAH(d.c, port, &w, grh, &c); code != 0 {
		return a, fmt.Errorf("%d bytes are no header of a datagram to this port: %w: %w", len(grh), ucs.ErrInvalid, fault(no))
	}
	return verbs.AHAttr{
		DGID: verbs.GID(c.grh.dgid), SGIDIndex: int(c.grh.sgid_index), Port: port, SL: uint8(c.sl),
		HopLimit: replyHopLimit, TrafficClass: uint8(c.grh.traffic_class), FlowLabel: uint32(c.grh.flow_label),
	}, nil
}

const (
	grhLen = 40
	// replyHopLimit is the hop limit of address handles that CreateAHFromWC creates.
	replyHopLimit = 64
)

// ID returns the handle's number.
func (h *ah) ID() verbs.AHID { return h.id }

// Close destroys the handle. It waits for the posts that are inside libibverbs and may use it.
func (h *ah) Close() error {
	d := h.domain.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	C.goucx_ahs_clear(d.ahs, C.uint32_t(h.id))
	for q := range d.qps {
		if q.typ == verbs.UD {
			C.goucx_quiesce(&q.c.gate)
		}
	}
	d.ahIDs.release(uint32(h.id))
	h.domain.Release(objects.AH)
	if err := d.freed(C.ibv_destroy_ah(h.c)); err != nil {
		return fmt.Errorf("close address handle: %w", err)
	}
	return nil
}
