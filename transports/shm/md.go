package shm

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/platform"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

const (
	transportName = "shm"
	deviceName    = "memory" // UCX's device name
)

type component struct{}

// Component returns the provider of the shm transport.
func Component() uct.Component { return component{} }

// Name: see uct.Component.
func (component) Name() string { return transportName }

// Aliases: see uct.Component. They are UCX's names for shared memory.
func (component) Aliases() []string { return []string{"sm", "mm", "posix"} }

// Settings: see uct.Component.
func (component) Settings() []config.Table { return []config.Table{settings} }

// Domains: see uct.Component. It probes the system features that the transport needs.
func (component) Domains(*config.Set) ([]uct.DomainInfo, []uct.Refusal) {
	// Connections create segments and pass descriptors over sockets.
	s, err := shmem.Create("goucx-probe", 1)
	if err == nil {
		err = s.Close()
	}
	if err == nil {
		if err = platform.TryFDPassing(); err != nil {
			err = fmt.Errorf("no descriptors can be passed between processes: %w", err)
		}
	}
	if err != nil {
		return nil, []uct.Refusal{{Transport: transportName, Device: deviceName, Reason: err.Error()}}
	}
	return []uct.DomainInfo{{Component: transportName, Name: transportName}}, nil
}

// OpenDomain: see uct.Component.
func (component) OpenDomain(i uct.DomainInfo, c uct.DomainConfig) (uct.Domain, error) {
	if i.Component != transportName || i.Name != transportName {
		return nil, fmt.Errorf("open shm domain %s/%s: %w", i.Component, i.Name, ucs.ErrInvalid)
	}
	return &domain{settings: c.Settings, log: c.Log, id: mapped.NewID(), keys: new(mapped.Keys), remotes: make(map[uct.UUID]*remote)}, nil
}

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
	replyWait time.Duration // wait for the reply of an owner; 0: requestTimeout

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
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("open shm iface: %w", ucs.ErrClosed)
	}
	return openIface(d, i, c)
}

// drainTime returns how long an end waits for peers that access memory of this process.
func (d *domain) drainTime() time.Duration { return cmp.Or(d.closeWait, mapped.CloseWait) }

// countIfaces adds n to the number of open ifaces.
func (d *domain) countIfaces(n int) {
	d.mu.Lock()
	d.ifaces += n
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
	err := d.keys.Close()
	for _, path := range d.tombstones {
		err = errors.Join(err, removeFile(path))
	}
	d.tombstones = nil
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

// logSend logs an error of a message with descriptors, unless it may pass, or the peer is gone.
func (d *domain) logSend(msg string, err error) {
	if !errors.Is(err, shmem.ErrWouldBlock) && !errors.Is(err, unix.ETOOMANYREFS) && !errors.Is(err, unix.EPIPE) {
		d.logf(msg, err)
	}
}

// Register: see uct.Domain. Peers in this process access buf directly. Peers in other
// processes use the kernel's copy between processes, without atomics: ucp has the owner's worker carry those out.
func (d *domain) Register(buf []byte, f uct.MemFlags) (uct.Mem, error) {
	d.exporterMu.Lock()
	defer d.exporterMu.Unlock()
	l, err := d.openExporter()
	if err != nil {
		return nil, fmt.Errorf("shm: register %d bytes: %w", len(buf), err)
	}
	r, err := l.Register(buf, f)
	if err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	return r, nil
}

// Allocate: see uct.Domain. The memory is a segment that peers map. Its pages are
// allocated now, so that no later access fails for lack of memory. With MemNoPin they
// are allocated at the first access.
func (d *domain) Allocate(n int, f uct.MemFlags) (uct.Mem, error) {
	if n <= 0 || n > domainAttr.MaxAllocate {
		return nil, fmt.Errorf("shm: allocate %d bytes: %w", n, ucs.ErrInvalid)
	}
	seg, err := shmem.Create("goucx-mem", n)
	if err != nil {
		return nil, fmt.Errorf("shm: allocate %d bytes: %w", n, noMemory(err))
	}
	if f&uct.MemNoPin == 0 {
		if err := seg.Populate(); err != nil {
			return nil, errors.Join(fmt.Errorf("shm: allocate %d bytes: %w", n, noMemory(err)), seg.Close())
		}
	}
	if f&uct.MemHuge != 0 {
		collapseHuge(seg.Bytes())
	}
	d.exporterMu.Lock()
	defer d.exporterMu.Unlock()
	l, err := d.openExporter()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shm: allocate %d bytes: %w", n, err), seg.Close())
	}
	r, err := l.Adopt(seg.Bytes(), seg.FD(), f, seg.Close)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shm: %w", err), seg.Close())
	}
	return r, nil
}

// noMemory wraps ErrNoMemory around the system errors that mean a lack of memory.
func noMemory(err error) error {
	for _, e := range []error{unix.ENOMEM, unix.ENOSPC, unix.EFAULT} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ucs.ErrNoMemory, err)
		}
	}
	return err
}
