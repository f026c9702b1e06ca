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

// domain is the memory that a program lends and borrows by shm. It costs
// nothing until the first region or key.
//
// Lock order: mu is the innermost of this package; nothing is waited for under it.
type domain struct {
	settings *config.Set
	log      *zap.Logger
	id       uct.UUID
	keys     *mapped.Keys
	drain    time.Duration // of closing regions; 0: mapped.CloseWait

	lendMu sync.Mutex // serialises the making of lender
	mu     sync.Mutex // guards the rest
	lender *lender    // nil before the first region
	// remotes are the domains of other processes of which a key is held.
	remotes map[uct.UUID]*remote
	ifaces  int
	graves  []string // files of workers that closed, the oldest first
	closed  bool
}

// pageSlack keeps a size, rounded up to a page of any size, within an int.
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

// ifaceOpened counts an open iface, ifaceClosed counts it down.
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

// Close: see uct.Domain. It releases the keys still held. Idempotent.
func (d *domain) Close() error {
	d.lendMu.Lock() // no region is being made
	defer d.lendMu.Unlock()
	d.mu.Lock()
	l, regions := d.lender, 0
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
	d.closed, d.lender = true, nil
	d.mu.Unlock()
	err := errors.Join(d.keys.Close(), d.removeGraves())
	if l != nil {
		err = errors.Join(err, l.close())
	}
	if err != nil {
		return fmt.Errorf("close shm domain: %w", err)
	}
	return nil
}

// logf tells about a fault that has no caller to be answered to.
func (d *domain) logf(what string, err error) {
	if d.log != nil {
		d.log.Warn(what, zap.Error(err))
	}
}
