package ucp

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/platform"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/ucs/stats/live"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// Feature is a set of operations that a program uses. A context without a feature refuses its
// operations with ErrUnsupported and the feature's name, and creates nothing for it. What peers
// send that needs it is rejected, or dropped and counted. docs/features.md has the memory of a
// worker by features.
type Feature uint32

// Features.
const (
	// FeatureTag: TagSend and TagRecv in all forms. Without it the worker keeps no unexpected
	// messages.
	FeatureTag Feature = 1 << iota
	// FeatureRMA: put and get, and peers' put and get on the context's memory.
	FeatureRMA
	// FeatureAtomics: atomics, and those of peers on the context's memory.
	FeatureAtomics
	// FeatureAM: AMSend and HandleAM.
	FeatureAM
)

const allFeatures = FeatureTag | FeatureRMA | FeatureAtomics | FeatureAM

// has returns OK if a context with features f supports one, else the status of the refusal.
func (f Feature) has(one Feature) ucs.Status {
	if f&one != 0 {
		return ucs.OK
	}
	return refusedFeature + ucs.Status(bits.TrailingZeros32(uint32(one)))
}

// access returns the rights to memory that contexts with features f use and grant.
func (f Feature) access() (a uct.MemFlags) {
	if f&FeatureRMA != 0 {
		a = uct.MemRemotePut | uct.MemRemoteGet
	}
	if f&FeatureAtomics != 0 {
		a |= uct.MemRemoteAtomic
	}
	return a
}

// featureNames lists the operations of each feature with the lanes that they use, by UCX's names
// and in UCX's order.
var featureNames = [...]struct {
	name    string
	feature Feature
	purpose wireup.Purpose
}{
	{"tag", FeatureTag, wireup.ForAM},
	{"rma", FeatureRMA, wireup.ForRMA},
	{"amo", FeatureAtomics, wireup.ForAMO},
	{"am", FeatureAM, wireup.ForAM},
}

// Config configures a Context. Only Providers is required; goucx.Open sets it.
type Config struct {
	// Providers are the transport components that may be used.
	Providers []uct.Component
	// Features requested; 0: all.
	Features Feature
	// Settings; nil: defaults, configuration files and UCX_* environment variables.
	Settings *config.Set
	// Log for the control path; nil: no log.
	Log *zap.Logger
	// CloseTimeout bounds every Close and Finish; 0: 10 s.
	CloseTimeout time.Duration
}

const defaultCloseTimeout = 10 * time.Second

// Context holds the memory domains of all usable transports. Its methods are safe for
// use from any goroutine.
type Context struct {
	id           wireup.ContextID
	features     Feature
	settings     *config.Set
	log          *zap.Logger
	closeTimeout time.Duration
	selection    *wireup.Selection
	warned       sync.Once // the warnings about interfaces that cannot be opened and devices that are absent
	refused      []uct.Refusal
	liveStats    *live.Server // nil: the program publishes no live statistics
	opened       ucs.Time     // when the program began to publish statistics
	emul         emulTable

	memory  atomic.Pointer[[]*MemHandle] // by address; changed by copies
	mu      sync.Mutex                   // guards the fields below
	domains []openDomain                 // nil after Close
	owned   map[io.Closer]struct{}       // workers and memory
	closed  bool
}

// openDomain is an open domain, with what it was opened from.
type openDomain struct {
	uct.Domain
	info uct.DomainInfo
	from uct.Component
}

func (x *Context) openDomain(from uct.Component, i uct.DomainInfo) (openDomain, error) {
	d, err := from.OpenDomain(i, uct.DomainConfig{Settings: x.settings, Log: x.log})
	return openDomain{d, i, from}, err
}

// Open opens every domain of the providers that the settings allow. A device that does
// not work is skipped and listed in Refused with the reason. Open returns an error if a
// setting is invalid or no domain is left.
func Open(c Config) (*Context, error) {
	set, err := c.load()
	if err != nil {
		return nil, fmt.Errorf("open context: %w", err)
	}
	x := &Context{
		id: wireup.ContextID{Process: platform.ProcessID(), Context: contextSeq.Add(1)}, features: c.Features, settings: set, log: c.Log, closeTimeout: c.CloseTimeout,
		owned: make(map[io.Closer]struct{}),
	}
	if x.features == 0 {
		x.features = allFeatures
	}
	if x.closeTimeout == 0 {
		x.closeTimeout = defaultCloseTimeout
	}
	if x.selection, err = wireup.Select(set, c.Providers); err != nil {
		return nil, fmt.Errorf("open context: %w", err)
	}
	x.refused = x.selection.Missing()
	for _, r := range x.refused {
		x.log.Info(r.String())
	}
	go func() { _ = shmem.RegisterPrivate() }() // slow in the kernel; workers need it
	go func() { _ = shmem.RegisterGlobal() }()
	for _, p := range c.Providers {
		if use, reason := x.selection.Transport(p.Name()); use != wireup.UseAll {
			x.refused = append(x.refused, uct.Refusal{Transport: p.Name(), Reason: reason})
			continue
		}
		infos, refused := p.Domains(x.settings)
		x.refused = append(x.refused, refused...)
		for _, i := range infos {
			d, err := x.openDomain(p, i)
			if err != nil {
				x.refused = append(x.refused, uct.Refusal{Transport: p.Name(), Device: i.Name, Reason: err.Error()})
				continue
			}
			x.domains = append(x.domains, d)
		}
	}
	if len(x.domains) == 0 {
		return nil, fmt.Errorf("open context: no transport works here%s: %w", reasons(x.refused), ErrUnsupported)
	}
	if err := x.publishStats(); err != nil {
		return nil, errors.Join(fmt.Errorf("open context: %w", err), x.Close())
	}
	return x, nil
}

// load checks the configuration, joins all errors, and returns the settings.
func (c *Config) load() (*config.Set, error) {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	var errs []error
	if len(c.Providers) == 0 {
		errs = append(errs, fmt.Errorf("no Providers: %w", ErrInvalid))
	}
	if c.Features&^allFeatures != 0 {
		errs = append(errs, fmt.Errorf("unknown Features %#x: %w", c.Features&^allFeatures, ErrInvalid))
	}
	if c.CloseTimeout < 0 {
		errs = append(errs, fmt.Errorf("CloseTimeout %v is negative: %w", c.CloseTimeout, ErrInvalid))
	}
	set := c.Settings
	if set == nil {
		loaded, warnings, err := config.Load(config.Options{}, Tables(c.Providers)...)
		for _, w := range warnings {
			if w.Info {
				c.Log.Info(w.Text)
			} else {
				c.Log.Warn(w.Text)
			}
		}
		errs = append(errs, err)
		set = loaded
	}
	return set, errors.Join(errs...)
}

// openedDomains returns the domains, ErrClosed after Close.
func (x *Context) openedDomains() ([]openDomain, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, ErrClosed
	}
	return x.domains, nil
}

// Refused lists the transports and devices that are not used, each with the reason.
func (x *Context) Refused() []uct.Refusal { return append([]uct.Refusal(nil), x.refused...) }

// own registers c to be closed with the context, unless disown removes it before.
func (x *Context) own(c io.Closer) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return ErrClosed
	}
	x.owned[c] = struct{}{}
	if m, ok := c.(*MemHandle); ok {
		x.listMemory(m, true)
	}
	return nil
}

// listMemory adds m to the sorted list of memory, or removes it. Readers may use the old list meanwhile. The caller holds the lock.
func (x *Context) listMemory(m *MemHandle, add bool) {
	var all []*MemHandle
	if old := x.memory.Load(); old != nil {
		all = slices.Clone(*old)
	}
	if add {
		i, _ := slices.BinarySearchFunc(all, m.base, compareBase)
		all = slices.Insert(all, i, m)
	} else {
		all = slices.DeleteFunc(all, func(o *MemHandle) bool { return o == m })
	}
	x.memory.Store(&all)
}

func compareBase(m *MemHandle, base uint64) int { return cmp.Compare(m.base, base) }

func (x *Context) disown(c io.Closer) {
	x.mu.Lock()
	delete(x.owned, c)
	if m, ok := c.(*MemHandle); ok {
		x.listMemory(m, false)
	}
	x.mu.Unlock()
}

// Close closes the workers with their endpoints, then memory, then domains. It
// progresses the workers meanwhile, so no other goroutine may use a worker that is not
// ThreadMulti. Each step is bounded by CloseTimeout. A worker whose callback does not
// return stays open, and so do memory and domains; the error reports it. Close is
// idempotent.
func (x *Context) Close() error {
	var all []*Worker
	x.mu.Lock()
	for c := range x.owned {
		if w, ok := c.(*Worker); ok {
			all = append(all, w)
		}
	}
	x.mu.Unlock()
	stuck := make(map[*Worker]error) // those that must stay open, with the reason
	for _, w := range all {
		w.t.lock()
		err := w.mayClose()
		w.t.unlock()
		switch {
		case errors.Is(err, errInHandler):
			return fmt.Errorf("close context: %w", err)
		case err != nil:
			stuck[w] = fmt.Errorf("close worker: %w", err)
		}
	}
	x.mu.Lock()
	x.closed = true
	var workers []*Worker
	var others []io.Closer
	var errs []error
	for c := range x.owned {
		if w, ok := c.(*Worker); !ok {
			others = append(others, c)
		} else if err := stuck[w]; err != nil {
			errs = append(errs, err)
		} else {
			workers = append(workers, w)
		}
	}
	domains := x.domains
	if len(errs) == 0 {
		x.domains = nil
	}
	x.mu.Unlock()
	flushBeforeClose(workers, x.closeTimeout)
	if x.liveStats != nil {
		errs = append(errs, x.liveStats.Close())
	}
	for _, w := range workers {
		if w.t.parent == nil { // it closes its Threads, all at once
			errs = append(errs, w.Close())
		}
	}
	for _, w := range workers { // Threads of workers that stay open
		errs = append(errs, w.Close())
	}
	if len(stuck) > 0 {
		return errors.Join(errs...)
	}
	for _, c := range others {
		errs = append(errs, c.Close())
	}
	for _, d := range domains {
		if err := d.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close domain %s: %w", d.info.Name, err))
		}
	}
	return errors.Join(errs...)
}

// workerSeq counts the workers of the process.
var workerSeq atomic.Uint32

// contextSeq counts the contexts of the process.
var contextSeq atomic.Uint32

// shortID returns the name of a worker in errors.
func shortID(u uct.UUID) string { return hex.EncodeToString(u[:4]) }
