package soft

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// MLX5 selects the account of UAR pages that an adapter with the driver mlx5 keeps. Of a
// UAR page a context uses two uUARs, the registers that queue pairs ring their doorbells
// through. The texts are those of libmlx5's environment variables; "" is the default.
type MLX5 struct {
	// TotalUUARs (MLX5_TOTAL_UUARS) is the number of static uUARs of a context, from 1 to
	// 512 [16]. An odd number is rounded up.
	TotalUUARs string
	// LowLatencyUUARs (MLX5_NUM_LOW_LAT_UUARS) is how many of them have one queue pair each
	// and no lock, from 0 to all but one [4]. At most 11 others are of medium latency: a
	// lower number is raised to TotalUUARs - 12.
	LowLatencyUUARs string
	// ShutUpBF (MLX5_SHUT_UP_BF) has no work request written with its doorbell.
	ShutUpBF bool
	// NoQPLock has a thread domain drop the lock of its queue pairs too, as a patch of the
	// paper on scalable endpoints does. Without it a thread domain drops the lock of its
	// uUAR only.
	NoQPLock bool
}

// Limits and sizes of mlx5.
//
// Source: rdma-core providers/mlx5/{mlx5.c,mlx5-abi.h}; Linux hw/mlx5/{main.c,mlx5_ib.h}.
// The limit of a device and of thread domains with Sharing 1: "Scalable Communication
// Endpoints for MPI+Threads Applications", sections III and V.B.
const (
	maxUUARs        = 512 // static, of a context
	mediumThreshold = 12  // uUARs that are not of low latency
	maxDynamicPages = 512 // of a context
	maxUnsharedTDs  = 256 // thread domains with Sharing 1, of a context
	maxUARPages     = 8192
)

// uuars returns the numbers of static uUARs and of those of low latency.
//
// Source: get_total_uuars and get_num_low_lat_uuars of libmlx5. A text that is no number
// is refused; libmlx5 takes the digits that it starts with.
func (m *MLX5) uuars() (total, lowLatency int, err error) {
	number := func(name, text string, unset, lo, hi int) (int, error) {
		n := unset
		if text != "" {
			var err error
			if n, err = strconv.Atoi(text); err != nil || n < lo || n > hi {
				return 0, fmt.Errorf("soft device: %s=%s, want %d to %d: %w", name, text, lo, hi, ucs.ErrInvalid)
			}
		}
		return n, nil
	}
	if total, err = number("MLX5_TOTAL_UUARS", m.TotalUUARs, 16, 1, maxUUARs); err != nil {
		return 0, 0, err
	}
	total += total & 1
	const low = "MLX5_NUM_LOW_LAT_UUARS"
	if lowLatency, err = number(low, m.LowLatencyUUARs, 4, 0, total-1); err != nil {
		return 0, 0, fmt.Errorf("%w (of %d uUARs)", err, total)
	}
	if lowLatency >= total { // the default
		return 0, 0, fmt.Errorf("soft device: %s=%d by default, want 0 to %d of MLX5_TOTAL_UUARS=%d: %w", low, lowLatency, total-1, total, ucs.ErrInvalid)
	}
	return total, max(lowLatency, total-mediumThreshold), nil
}

// uuarClass is how mlx5 uses a uUAR.
type uuarClass uint8

const (
	// highLatency: uUAR 0. Any number of queue pairs ring its doorbell, with one store each
	// and no lock.
	highLatency uuarClass = iota
	// mediumLatency: several queue pairs share it. Its lock is taken for each post.
	mediumLatency
	// lowLatency: one queue pair has it.
	lowLatency
	// ofThread: the queue pairs of a thread domain have it.
	ofThread
	numUUARClasses
)

var uuarClassNames = [numUUARClasses]string{"high_latency", "medium_latency", "low_latency", "dynamic"}

// uuar is a uUAR.
type uuar struct {
	number    int
	class     uuarClass
	blueFlame bool     // a work request may be written with its doorbell
	qps       int      // guarded by device.mu
	page      *uarPage // of a dynamic one

	_     ucs.Pad // the posts of other queue pairs read what is above
	lock  spinlock
	locks uint64 // how often lock was taken; guarded by it
	_     ucs.Pad
}

// uarPage is a dynamic UAR page.
type uarPage struct {
	index    int // in uars.dynamic
	unshared bool
	tds      int
	uuars    [2]uuar
}

// uars is a context's account of UAR pages. A nil account is that of a context without:
// its methods do nothing.
//
// Invariant: free holds exactly those uUARs without a thread domain whose page has a
// thread domain with Sharing 2 (or 0).
//
// Concurrency: device.mu guards all.
type uars struct {
	p          *Provider
	info       verbs.DeviceInfo
	conf       MLX5
	static     []uuar
	lowLatency int
	dynamic    []*uarPage // nil: no page has this number
	numDynamic int
	unshared   int     // pages of thread domains with Sharing 1
	free       []*uuar // in the order in which they became free
}

// limits returns those of the adapter.
func (a *uars) limits() verbs.TDLimits {
	if a == nil {
		return verbs.TDLimits{}
	}
	return verbs.TDLimits{IndependentTDs: maxUnsharedTDs, TDPages: maxDynamicPages, Pages: maxUARPages, ContextPages: len(a.static) / 2}
}

// openUARs returns the account of a new context; nil without Config.Adapter.
//
// Errors: ucs.ErrNoResource if the device has too few pages.
func openUARs(p *Provider, info verbs.DeviceInfo, conf *MLX5) (*uars, error) {
	if conf == nil {
		return nil, nil
	}
	total, low, err := conf.uuars()
	if err == nil {
		err = p.takePages(info, total/2)
	}
	if err != nil {
		return nil, err
	}
	a := &uars{p: p, info: info, conf: *conf, static: make([]uuar, total), lowLatency: low}
	for i := range a.static {
		class := mediumLatency
		switch {
		case i == 0:
			class = highLatency
		case i >= total-low:
			class = lowLatency
		}
		a.static[i].init(i, class, conf)
	}
	return a, nil
}

func (u *uuar) init(number int, class uuarClass, conf *MLX5) {
	u.number, u.class, u.blueFlame = number, class, class != highLatency && !conf.ShutUpBF
}

// close releases the pages of a context, which has no thread domains any more.
func (a *uars) close() {
	if a != nil {
		a.p.takePages(a.info, -len(a.static)/2) //nolint:errcheck // less is always possible
	}
}

// addQP assigns a uUAR to a queue pair: that of its thread domain t. Without one it is the
// first free one of low latency, else the one of medium latency with the fewest queue
// pairs, else uUAR 0.
//
// Source: alloc_bfreg of Linux hw/mlx5/qp.c.
func (a *uars) addQP(t *td) *uuar {
	if a == nil {
		return nil
	}
	var u *uuar
	if t != nil {
		u = t.uuar
	}
	firstLow := len(a.static) - a.lowLatency
	for i := firstLow; u == nil && i < len(a.static); i++ {
		if a.static[i].qps == 0 {
			u = &a.static[i]
		}
	}
	if u == nil && firstLow > 1 {
		u = &a.static[1]
		for i := range a.static[1:firstLow] {
			if m := &a.static[1+i]; m.qps < u.qps {
				u = m
			}
		}
	}
	if u == nil {
		u = &a.static[0]
	}
	u.qps++
	return u
}

// removeQP undoes addQP.
func (a *uars) removeQP(u *uuar) {
	if a != nil {
		u.qps--
	}
}

// addTD assigns a uUAR to a thread domain. With sharing 1 it has a page of its own, whose
// second uUAR is wasted. Otherwise it takes the uUAR that became free first, or a new
// page, whose second uUAR is free then.
//
// Source: mlx5_attach_dedicated_uar of libmlx5; the paper for sharing 1.
//
// Errors: ucs.ErrNoResource.
func (a *uars) addTD(sharing int) (*uuar, error) {
	if a == nil {
		return nil, nil
	}
	if sharing != 1 && len(a.free) > 0 {
		u := a.free[0]
		a.free = slices.Delete(a.free, 0, 1)
		u.page.tds++
		return u, nil
	}
	if sharing == 1 && a.unshared == maxUnsharedTDs {
		return nil, fmt.Errorf("it needs a UAR page of its own, and %d of the context have one, which is the limit; Sharing 2 takes half a page: %w", a.unshared, ucs.ErrNoResource)
	}
	if a.numDynamic == maxDynamicPages {
		return nil, fmt.Errorf("it needs a UAR page, and the context has %d dynamic ones, which is the limit: %w", a.numDynamic, ucs.ErrNoResource)
	}
	if err := a.p.takePages(a.info, 1); err != nil {
		return nil, err
	}
	p := &uarPage{index: slices.Index(a.dynamic, nil), unshared: sharing == 1, tds: 1}
	if p.index < 0 {
		p.index = len(a.dynamic)
		a.dynamic = append(a.dynamic, nil)
	}
	a.dynamic[p.index] = p
	a.numDynamic++
	for i := range p.uuars {
		p.uuars[i].init(len(a.static)+2*p.index+i, ofThread, &a.conf)
		p.uuars[i].page = p
	}
	if p.unshared {
		a.unshared++
	} else {
		a.free = append(a.free, &p.uuars[1])
	}
	return &p.uuars[0], nil
}

// removeTD undoes addTD. A page without thread domains goes back to the device; mlx5 keeps
// it until the context closes.
func (a *uars) removeTD(u *uuar) {
	if a == nil {
		return
	}
	p := u.page
	if p.tds--; p.tds > 0 {
		a.free = append(a.free, u)
		return
	}
	a.free = slices.DeleteFunc(a.free, func(u *uuar) bool { return u.page == p })
	a.dynamic[p.index] = nil
	a.numDynamic--
	if p.unshared {
		a.unshared--
	}
	a.p.takePages(a.info, -1) //nolint:errcheck // less is always possible
}

// takePages counts n more UAR pages of a device, or fewer, over all of its contexts.
//
// Errors: ucs.ErrNoResource.
func (p *Provider) takePages(info verbs.DeviceInfo, n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if used := p.uarPages[info]; used+n > maxUARPages {
		return fmt.Errorf("it needs UAR pages: %d, and the contexts of the device have %d of %d: %w", n, used, maxUARPages, ucs.ErrNoResource)
	}
	if p.uarPages == nil {
		p.uarPages = make(map[verbs.DeviceInfo]int)
	}
	p.uarPages[info] += n
	return nil
}
