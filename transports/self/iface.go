package self

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/goucx/goucx/transports/internal/pending"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// addressLen is the length of an iface's address in bytes. The address is random, so
// that no two ifaces have the same.
const addressLen = 8

// iface is a worker's interface to itself.
type iface struct {
	handler uct.Handler
	eps     []*endpoint
	next    int // index in eps at which the next Progress begins

	armed     bool // the next send signals event
	signalled bool // event is signalled
	closed    bool
	closing   []*endpoint // closed endpoints in the order of Close; still in eps

	dom        *domain
	size       sizes
	lastSource uint32 // last value used for Desc.Source
	active     int
	address    [addressLen]byte
	event      *shmem.EventFD // nil if the system has no eventfd
	attr       uct.IfaceAttr
}

func openIface(d *domain, c uct.IfaceConfig) (*iface, error) {
	if c.Handler == nil || c.Worker == (uct.UUID{}) {
		return nil, fmt.Errorf("need a handler and a worker: %w", ucs.ErrInvalid)
	}
	if c.Settings == nil {
		c.Settings = d.settings
	}
	seg := int(segSize.Get(c.Settings))
	i := &iface{handler: c.Handler, dom: d, size: sizes{
		seg:    seg,
		cells:  1 << bits.Len(uint(fifoSize.Get(c.Settings)-1)),
		memory: queueSegments * align(seg+maxHeader),
	}}
	if _, err := rand.Read(i.address[:]); err != nil {
		return nil, err
	}
	event, err := shmem.NewEventFD()
	if err != nil && !errors.Is(err, ucs.ErrUnsupported) {
		return nil, err
	}
	i.event = event
	i.attr = attr(i.size, event != nil)
	return i, nil
}

// attr returns the iface's capabilities. Bandwidth is that of a copy within a process.
//
// Source: the estimates of UCX's self transport.
func attr(s sizes, events bool) uct.IfaceAttr {
	direct := uct.Limit{Short: math.MaxInt, Bcopy: math.MaxInt, MaxZcopy: math.MaxInt, MaxVec: math.MaxInt}
	a := uct.IfaceAttr{
		Ops: uct.OpsAM | uct.OpsPut | uct.OpsGet | uct.OpAtomics | uct.OpFlushLocal |
			uct.OpFlushRemote | uct.OpFlushCancel | uct.OpFence | uct.OpPending | uct.OpCheck,
		AM:  uct.Limit{Short: s.seg, Bcopy: s.seg, MaxZcopy: s.seg, MaxVec: maxVec, MaxHeader: maxHeader},
		Put: direct, Get: direct,
		Post32: uct.PostAtomics, Post64: uct.PostAtomics,
		Fetch32: uct.AllAtomics, Fetch64: uct.AllAtomics,
		Connect:        uct.ConnectToIface,
		AckMeansPlaced: true,
		Estimate:       uct.Estimate{Dedicated: 19360 << 20, OverheadNS: 10},
	}
	if events {
		a.Events = uct.EventRecv | uct.EventSend
	}
	return a
}

// Attr: see uct.Iface.
func (i *iface) Attr() *uct.IfaceAttr { return &i.attr }

// DeviceAddress appends nothing: there is one device, and it reaches no other host.
func (i *iface) DeviceAddress(b []byte) []byte { return b }

// Address: see uct.Iface.
func (i *iface) Address(b []byte) []byte { return append(b, i.address[:]...) }

// Reachable: see uct.Iface.
func (i *iface) Reachable(a uct.Address) (bool, string) {
	if len(a.Device) == 0 && bytes.Equal(a.Iface, i.address[:]) {
		return true, ""
	}
	return false, "reaches only its own worker"
}

// NewEndpoint: see uct.Iface.
func (i *iface) NewEndpoint(a uct.Address) (uct.Endpoint, error) {
	if i.closed {
		return nil, fmt.Errorf("self endpoint: %w", ucs.ErrClosed)
	}
	if ok, reason := i.Reachable(a); !ok {
		return nil, fmt.Errorf("self endpoint to %x/%x: %s: %w", a.Device, a.Iface, reason, ucs.ErrUnreachable)
	}
	i.lastSource = max(i.lastSource+1, 1)
	e := &endpoint{iface: i, size: i.size, source: i.lastSource, reserved: none}
	e.Init(&i.dom.keys)
	i.eps = append(i.eps, e)
	return e, nil
}

// Disconnect: see uct.Iface. It does nothing: connections cannot fail.
func (i *iface) Disconnect(uint32) {}

// Activate: see uct.Iface.
func (i *iface) Activate() { i.active++ }

// Deactivate: see uct.Iface.
func (i *iface) Deactivate() { i.active-- }

// ActiveEndpoints: see uct.Iface. Only this worker initiates connections.
func (i *iface) ActiveEndpoints() int { return i.active }

// Flush: see uct.Iface. Nothing is ever in flight.
func (i *iface) Flush(uct.Token) uct.Status { return i.Fence() }

// Fence: see uct.Iface.
func (i *iface) Fence() uct.Status {
	if i.closed {
		return ucs.Closed
	}
	if len(i.eps) > 0 { // one barrier orders the accesses of all endpoints: there is one goroutine
		i.eps[0].Barrier()
	}
	return ucs.OK
}

// Close: see uct.Iface. It drops undelivered messages.
func (i *iface) Close() error {
	if i.closed {
		return nil
	}
	i.closed = true
	for _, e := range i.eps {
		e.rejectOps(ucs.Closed)
		e.pend = pending.Queue{}
	}
	i.eps, i.closing = nil, nil
	i.dom.mu.Lock()
	i.dom.ifaces--
	i.dom.mu.Unlock()
	if i.event == nil {
		return nil
	}
	return i.event.Close()
}
