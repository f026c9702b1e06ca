package soft

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
	"github.com/goucx/goucx/verbs/wire"
)

// ah is an address handle: an address and the resolved route to it.
type ah struct {
	attr   verbs.AHAttr
	pd     *pd // the domain whose protection applies
	domain *pd // the domain that it was created in
	route  route

	id     verbs.AHID
	closed bool // guarded by device.mu
}

// ahTable finds address handles by id without a lock.
type ahTable struct {
	keySpace
	slots[ah]
}

// find returns the handle with that id, or nil.
//
//hot:bench BenchmarkFindAH
func (t *ahTable) find(id verbs.AHID) *ah {
	a := t.at(t.index(uint32(id)))
	if a == nil || a.id != id {
		return nil
	}
	return a
}

func (t *ahTable) add(h *ah) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.id = verbs.AHID(t.alloc())
	t.set(t.index(uint32(h.id)), h)
}

func (t *ahTable) remove(h *ah) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(t.index(uint32(h.id)), nil)
	t.release(uint32(h.id))
}

// checkAddress refuses addresses that no peer has or that the device cannot use.
func (d *device) checkAddress(a *verbs.AHAttr) error {
	if err := d.checkPort(a.Port); err != nil {
		return err
	}
	switch {
	case a.SGIDIndex < 0 || a.SGIDIndex >= d.numGIDs():
		return fmt.Errorf("SGIDIndex %d of soft device %q, which has gids 0 to %d: %w", a.SGIDIndex, d.info.Name, d.numGIDs()-1, ucs.ErrInvalid)
	case a.FlowLabel >= 1<<20:
		return fmt.Errorf("FlowLabel %#x of more than 20 bits: %w", a.FlowLabel, ucs.ErrInvalid)
	case a.PeerFeatures&^verbs.PeerGoucx != 0:
		return fmt.Errorf("PeerFeatures %#x: %w", a.PeerFeatures, ucs.ErrInvalid)
	case a.DGID == verbs.GID{}:
		return fmt.Errorf("no DGID: %w", ucs.ErrInvalid)
	case a.DGID.Addr().IsMulticast() && !d.hasMulticast():
		return fmt.Errorf("multicast group %v: %w", a.DGID.Addr(), ucs.ErrUnsupported)
	}
	return nil
}

// CreateAH creates an address handle.
func (p *pd) CreateAH(a verbs.AHAttr) (verbs.AH, error) {
	fail := func(err error) (verbs.AH, error) { return nil, fmt.Errorf("create address handle: %w", err) }
	d := p.d
	if err := d.checkAddress(&a); err != nil {
		return fail(err)
	}
	to, err := d.resolve(&a, a.PeerFeatures)
	if err != nil {
		return fail(err)
	}
	h := &ah{attr: a, pd: p.protection, domain: p, route: to}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.Admit(objects.AH, d.attr.MaxAH); err != nil {
		return fail(err)
	}
	d.ahs.add(h)
	return h, nil
}

// replyHopLimit is the hop limit of address handles that CreateAHFromWC creates.
const replyHopLimit = 64

// CreateAHFromWC creates an address handle for the sender of a datagram.
func (p *pd) CreateAHFromWC(port uint8, wc *verbs.WC, grh []byte) (verbs.AH, error) {
	a, err := p.d.senderOf(port, wc, grh)
	if err != nil {
		return nil, fmt.Errorf("create address handle from a completion: %w", err)
	}
	return p.CreateAH(a)
}

// senderOf returns the sender's address. It reads a datagram's completion and the GRH
// area before the payload.
//
// Source: rdma-core, ibv_init_ah_from_wc.
func (d *device) senderOf(port uint8, wc *verbs.WC, grh []byte) (verbs.AHAttr, error) {
	if wc.Flags&verbs.WCGRH == 0 {
		return verbs.AHAttr{}, fmt.Errorf("no GRH: %w", ucs.ErrInvalid)
	}
	n, ok := wire.GRH(grh).Network()
	if !ok {
		return verbs.AHAttr{}, fmt.Errorf("%d bytes without an IP header: %w", len(grh), ucs.ErrInvalid)
	}
	index := 0
	if to := n.Dst.Addr(); !to.IsMulticast() {
		for index < d.numGIDs() && d.gidAt(index) != verbs.GIDOf(to) {
			index++
		}
		if index == d.numGIDs() {
			return verbs.AHAttr{}, fmt.Errorf("datagram to %v, soft device %q has another address: %w", to, d.info.Name, ucs.ErrInvalid)
		}
	}
	return verbs.AHAttr{
		SGIDIndex: index,
		DGID:      verbs.GIDOf(n.Src.Addr()), DLID: wc.SLID, Port: port,
		HopLimit: replyHopLimit, TrafficClass: n.TOS, FlowLabel: n.FlowLabel,
	}, nil
}

// ID returns the handle's id.
func (h *ah) ID() verbs.AHID { return h.id }

// Close destroys the handle. Work requests that were posted with it are still sent:
// each holds a pointer to the handle and its route.
func (h *ah) Close() error {
	d := h.pd.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	d.ahs.remove(h)
	h.domain.Release(objects.AH)
	return nil
}
