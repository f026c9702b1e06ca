package shm

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// domain holds the regions that this process exposes by shm and the keys of remote
// regions. It allocates nothing until the first region or key.
//
// Lock order: mu is the innermost lock of this package. Code never blocks under it.
type domain struct {
	settings  *config.Set
	log       *zap.Logger
	id        uct.UUID
	keys      *mapped.Keys
	closeWait time.Duration // wait for accesses to a region that is being closed; 0: mapped.CloseWait

	exporterMu sync.Mutex // serializes the creation of lender
	mu         sync.Mutex // guards the fields below
	exporter   *exporter  // nil before the first region
	// remotes are the domains of other processes of which this domain holds a key.
	remotes    map[uct.UUID]*remote
	ifaces     int
	tombstones []string // socket files of closed workers, oldest first
	closed     bool
}

// pageSlack keeps a size within an int after it is rounded up to any page size.
const pageSlack = 1 << 30

var domainAttr = uct.DomainAttr{
	Register: true, Allocate: true,
	MaxRegister: math.MaxInt, MaxAllocate: math.MaxInt - pageSlack, KeyLen: mapped.MaxKey,
}

// Attr: see uct.Domain.
func (d *domain) Attr() *uct.DomainAttr { return &domainAttr }

// Ifaces: see uct.Domain.
func (d *domain) Ifaces() ([]uct.IfaceInfo, []uct.Refusal) {
	return []uct.IfaceInfo{{Transport: transportName, ID: uct.TransportShm, Device: deviceName, Kind: uct.DeviceShm}}, nil
}

// OpenIface: see uct.Domain.
func (d *domain) OpenIface(i uct.IfaceInfo, c uct.IfaceConfig) (uct.Iface, error) {
	if i.Transport != transportName || i.Device != deviceName {
		return nil, fmt.Errorf("open shm iface %s/%s: %w", i.Transport, i.Device, ucs.ErrInvalid)
	}
	if c.Settings == nil {
		c.Settings = d.settings
	}
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("open shm iface: %w", ucs.ErrClosed)
	}
	return openIface(d, i, c)
}

// ifaceOpened increments the number of open ifaces; ifaceClosed decrements it.
func (d *domain) ifaceOpened() {
	d.mu.Lock()
	d.ifaces++
	d.mu.Unlock()
}

func (d *domain) ifaceClosed() {
	d.mu.Lock()
	d.ifaces--
	d.mu.Unlock()
}

// Close: see uct.Domain. It releases the keys that are still held. Idempotent.
func (d *domain) Close() error {
	d.exporterMu.Lock() // waits until no region is being created
	defer d.exporterMu.Unlock()
	d.mu.Lock()
	l, regions := d.exporter, 0
	if l != nil {
		regions = l.Len()
	}
	if d.closed || d.ifaces > 0 || regions > 0 {
		defer d.mu.Unlock()
		if d.closed {
			return nil
		}
		return fmt.Errorf("close shm domain: %d ifaces and %d regions open: %w", d.ifaces, regions, ucs.ErrBusy)
	}
	d.closed, d.exporter = true, nil
	d.mu.Unlock()
	err := errors.Join(d.keys.Close(), d.removeTombstones())
	if l != nil {
		err = errors.Join(err, l.close())
	}
	if err != nil {
		return fmt.Errorf("close shm domain: %w", err)
	}
	return nil
}

// logf logs an error that has no caller to return to.
func (d *domain) logf(msg string, err error) {
	if d.log != nil {
		d.log.Warn(msg, zap.Error(err))
	}
}
