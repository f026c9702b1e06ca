package soft

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// ah is an address handle: an address and where it leads.
type ah struct {
	attr verbs.AHAttr
	pd   *pd // the protection
	from *pd // the domain that it was made in
	to   route

	id     verbs.AHID
	closed bool // under d.mu
}

// ahTable finds address handles by id without a lock.
type ahTable struct {
	keySpace
	slots[ah]
}

// find gives the handle with that id; nil: there is none.
//
// hot: BenchmarkFindAH.
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

// checkAddress refuses addresses that no peer has or that the device cannot
// use.
func (d *device) checkAddress(a *verbs.AHAttr) error {
	if err := d.checkPort(a.Port); err != nil {
		return err
	}
	switch {
	case a.SGIDIndex != 0:
		return fmt.Errorf("SGIDIndex %d of soft device %q, which has one gid: %w", a.SGIDIndex, d.info.Name, ucs.ErrInvalid)
	case a.FlowLabel >= 1<<20:
		return fmt.Errorf("FlowLabel %#x of more than 20 bits: %w", a.FlowLabel, ucs.ErrInvalid)
	case a.PeerFeatures&^verbs.PeerGoucx != 0:
		return fmt.Errorf("PeerFeatures %#x: %w", a.PeerFeatures, ucs.ErrInvalid)
	case a.DGID == verbs.GID{}:
		return fmt.Errorf("no DGID: %w", ucs.ErrInvalid)
	case a.DGID.Addr().IsMulticast():
		return fmt.Errorf("multicast group %v: %w", a.DGID.Addr(), ucs.ErrUnsupported)
	}
	return nil
}

// CreateAH makes an address handle.
func (p *pd) CreateAH(a verbs.AHAttr) (verbs.AH, error) {
	h, err := p.createAH(&a)
	if err != nil {
		return nil, fmt.Errorf("create address handle: %w", err)
	}
	return h, nil
}

func (p *pd) createAH(a *verbs.AHAttr) (*ah, error) {
	d := p.d
	if err := d.checkAddress(a); err != nil {
		return nil, err
	}
	to, err := d.resolve(a, a.PeerFeatures)
	if err != nil {
		return nil, err
	}
	h := &ah{attr: *a, pd: p.prot, from: p, to: to}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.admit(kindAH, d.attr.MaxAH); err != nil {
		return nil, err
	}
	d.ahs.add(h)
	return h, nil
}

// CreateAHFromWC makes an address handle of a datagram's sender.
func (p *pd) CreateAHFromWC(port uint8, wc *verbs.WC, grh []byte) (verbs.AH, error) {
	a, err := p.d.senderOf(port, wc, grh)
	if err != nil {
		return nil, fmt.Errorf("create address handle from a completion: %w", err)
	}
	return p.CreateAH(a)
}

// replyHops is the hop limit of answers.
const replyHops = 64

// senderOf reads the sender's address out of a datagram's completion and the
// area before its data.
//
// Source: rdma-core, ibv_init_ah_from_wc.
func (d *device) senderOf(port uint8, wc *verbs.WC, grh []byte) (verbs.AHAttr, error) {
	if wc.Flags&verbs.WCGRH == 0 {
		return verbs.AHAttr{}, fmt.Errorf("it has no GRH: %w", ucs.ErrInvalid)
	}
	n, ok := wire.GRH(grh).Network()
	if !ok {
		return verbs.AHAttr{}, fmt.Errorf("%d bytes that hold no IP header: %w", len(grh), ucs.ErrInvalid)
	}
	if to := n.Dst.Addr(); !to.IsMulticast() && verbs.GIDOf(to) != d.gid {
		return verbs.AHAttr{}, fmt.Errorf("a datagram to %v, which soft device %q is not: %w", to, d.info.Name, ucs.ErrInvalid)
	}
	return verbs.AHAttr{
		DGID: verbs.GIDOf(n.Src.Addr()), DLID: wc.SLID, Port: port,
		HopLimit: replyHops, TrafficClass: n.TOS, FlowLabel: n.FlowLabel,
	}, nil
}

// ID is the handle's id.
func (h *ah) ID() verbs.AHID { return h.id }

// Close gives the handle back. What was posted with it before goes its way: the
// work request holds where that leads.
func (h *ah) Close() error {
	d := h.pd.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	d.ahs.remove(h)
	h.from.leave(kindAH)
	return nil
}
