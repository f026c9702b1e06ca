package soft

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

// device is an open software device. It implements verbs.Context.
type device struct {
	info verbs.DeviceInfo
	attr verbs.DeviceAttr
	conf Config // with defaults filled in
	// addrs are the addresses of a UDP device, by GID index.
	addrs []netip.Addr

	// mu guards the control path: creation, counts and close of objects.
	mu           sync.Mutex
	open         objects.Counts
	cqs          objectSet[*cq] // open completion queues
	srqs         objectSet[*srq]
	closedCounts counts // of closed objects
	parents      int    // open parent domains
	uars         *uars  // nil without Config.Adapter

	mrs    mrTable
	ahs    ahTable
	groups groups
	events eventQueue

	qps   qpTable
	gid   verbs.GID
	lid   uint16
	index uint32 // in the Switch
	kind  linkKind
	link  link
	udp   *udp.Socket // of overUDP: that of GID 0
	// sockets are those of overUDP by GID index, all on the same port.
	sockets []*udp.Socket
	// manySockets is set if receiveUDP has more to look at than one socket: several addresses, or
	// multicast groups.
	manySockets atomic.Bool
	faults      *faultLink // the link, if it has faults
	memoryUsers memoryUsers
	background  background

	// engines are the engines of the device, of which the first is own. A change replaces the
	// list, under mu.
	engines atomic.Pointer[[]*engine]
	own     engine

	socketEmpty atomic.Uint32 // 1: the last pass found the socket empty
}

const (
	maxMRSize  = 1 << 62
	maxMessage = 1 << 30
)

func open(p *Provider, s *deviceSpec) (*device, error) {
	d := &device{info: s.info, conf: p.conf.withDefaults()}
	if d.conf.MTU == 0 {
		d.conf.MTU = s.mtu
	}
	if d.conf.MTU > s.mtu {
		return nil, fmt.Errorf("MTU of %d bytes, the interface carries %d: %w", d.conf.MTU.Bytes(), s.mtu.Bytes(), ucs.ErrInvalid)
	}
	d.conf.Link, d.conf.Addr, d.conf.Switch = s.info.Link, s.addr, p.sw
	d.addrs = append([]netip.Addr{s.addr}, s.more...)

	// GID and LID come from the address, or are random without one. openLink may replace
	// them.
	var r [16]byte
	_, _ = rand.Read(r[:]) // never fails
	if s.addr.IsValid() {
		d.gid, d.lid = verbs.GIDOf(s.addr), d.conf.Port
	} else {
		copy(d.gid[:], randomPrefix[:])
		copy(d.gid[8:], r[:8])
	}
	if d.info.Link != LinkUDP && d.lid == 0 {
		d.lid = max(1, binary.LittleEndian.Uint16(r[8:]))
	}
	l := &d.conf.Limits
	d.attr = verbs.DeviceAttr{
		NodeGUID: binary.LittleEndian.Uint64(r[:]), MaxMRSize: maxMRSize,
		MaxQP: l.QPs, MaxQPWR: l.QPWR, MaxSGE: verbs.MaxSGE, MaxCQ: l.CQs, MaxCQE: l.CQE,
		MaxMR: l.MRs, MaxCQModCount: maxModCount, MaxCQModPeriod: maxModPeriod,
		MaxMW: min(l.MRs, maxKeys-l.MRs), MaxPD: l.PDs, MaxAH: l.AHs, MaxSRQ: l.SRQs, MaxSRQWR: l.SRQWR, MaxSRQSGE: verbs.MaxSGE,
		MaxQPRdAtomic: l.RdAtomic, MaxQPInitRdAtomic: l.RdAtomic,
		MaxInline: d.conf.MaxInline, MaxMessage: maxMessage,
		Atomic: verbs.AtomicGlobal, Ports: 1, SRQResize: true, AckMeansPlaced: true,
	}
	d.mrs.init()
	d.ahs.init()
	d.events.notifier.init()
	var err error
	if d.uars, err = openUARs(p, s.info, p.conf.Adapter); err != nil {
		return nil, err
	}
	d.attr.ThreadDomains = d.uars.limits()
	if err := d.start(); err != nil {
		d.uars.close()
		return nil, err
	}
	if d.hasMulticast() {
		d.attr.MaxMcastGroups, d.attr.MaxMcastAttach = d.maxGroups(), maxMcastAttach
	}
	return d, nil
}

// randomPrefix starts the GIDs of devices without an address: a prefix of IPv6 unique
// local addresses. 64 random bits follow.
var randomPrefix = [8]byte{0xfd, 0, 'g', 'o', 'u', 'c', 'x', 0}

// Info returns the name and place of the device.
func (d *device) Info() verbs.DeviceInfo { return d.info }

// Attr returns the device attributes.
func (d *device) Attr() *verbs.DeviceAttr { return &d.attr }

// Port returns the attributes of port 1.
func (d *device) Port(n uint8) (verbs.PortAttr, error) {
	if err := d.checkPort(n); err != nil {
		return verbs.PortAttr{}, err
	}
	a := verbs.PortAttr{
		State: verbs.PortActive, MaxMTU: verbs.MTU4096, ActiveMTU: d.activeMTU(), GIDs: d.numGIDs(), PKeys: 1,
		LID: d.lid, Link: verbs.LinkEthernet, MaxMessage: maxMessage, PeerFeatures: verbs.PeerGoucx,
	}
	if d.conf.MTU > a.ActiveMTU {
		a.LongMTU = d.conf.MTU
	}
	if d.kind != overInproc && a.LID == wire.Port {
		a.LID = 0 // as rxe and hardware have it
	}
	return a, nil
}

// activeMTU returns the MTU of datagrams, and of paths to rxe and hardware.
func (d *device) activeMTU() verbs.MTU { return min(d.conf.MTU, verbs.MTU4096) }

// numGIDs returns the number of GIDs.
func (d *device) numGIDs() int { return max(1, len(d.sockets)) }

// GID returns a GID: over UDP one of the device's addresses.
func (d *device) GID(port uint8, index int) (verbs.GID, error) {
	if err := d.checkTable(port, index, d.numGIDs(), "gid"); err != nil {
		return verbs.GID{}, err
	}
	return d.gidAt(index), nil
}

// gidAt returns GID index, which is in the table.
func (d *device) gidAt(index int) verbs.GID {
	if index > 0 {
		return d.sockets[index].GID()
	}
	return d.gid
}

// PKey returns the P_Key of the default partition.
func (d *device) PKey(port uint8, index int) (uint16, error) {
	if err := d.checkTable(port, index, 1, "pkey"); err != nil {
		return 0, err
	}
	return defaultPKey, nil
}

// checkTable refuses what is not in a table of port 1 with n entries.
func (d *device) checkTable(port uint8, index, n int, name string) error {
	if err := d.checkPort(port); err != nil {
		return err
	}
	if index < 0 || index >= n {
		return fmt.Errorf("%s %d of soft device %q, which has %d: %w", name, index, d.info.Name, n, ucs.ErrInvalid)
	}
	return nil
}

func (d *device) checkPort(n uint8) error {
	if n != 1 {
		return fmt.Errorf("port %d of soft device %q, which has port 1: %w", n, d.info.Name, ucs.ErrInvalid)
	}
	return nil
}

// Close closes the device. It fails with ucs.ErrBusy while objects of it are open.
func (d *device) Close() error {
	d.mu.Lock()
	first, err := d.open.Close()
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("close soft device %q: %w", d.info.Name, err)
	}
	if !first {
		return nil
	}
	d.events.close()
	d.uars.close()
	return d.stop()
}

// FailDevice has an open soft device fail, as hardware does that is removed: what is posted never
// completes, its queue pairs refuse further requests, and the event is verbs.EventDeviceFatal. It
// is for tests of how programs end then, which close the device.
//
// Errors: ucs.ErrUnsupported for other devices.
func FailDevice(c verbs.Context) error {
	d, ok := c.(*device)
	if !ok {
		return fmt.Errorf("fail device %q, which is no soft device: %w", c.Info().Name, ucs.ErrUnsupported)
	}
	var all []*qp
	d.mu.Lock()
	d.qps.each(func(q *qp) { all = append(all, q) })
	d.mu.Unlock()
	for _, q := range all {
		_ = q.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState) // an error means that it is closed
	}
	d.raise(verbs.AsyncEvent{Type: verbs.EventDeviceFatal})
	return nil
}

// objectSet is an unordered set of objects, each of which stores its index.
type objectSet[T interface{ indexPtr() *int }] struct{ all []T }

func (b *objectSet[T]) add(v T) {
	*v.indexPtr() = len(b.all)
	b.all = append(b.all, v)
}

func (b *objectSet[T]) remove(v T) {
	last := len(b.all) - 1
	b.all[*v.indexPtr()] = b.all[last]
	*b.all[last].indexPtr() = *v.indexPtr()
	clear(b.all[last:])
	b.all = b.all[:last]
}

// MadeBy returns the device of an object that a program passes back.
func (c *cq) MadeBy() *device           { return c.d }
func (s *srq) MadeBy() *device          { return s.d }
func (ch *compChannel) MadeBy() *device { return ch.d }
func (t *td) MadeBy() *device           { return t.d }
func (p *pd) MadeBy() *device           { return p.d }
