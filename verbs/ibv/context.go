//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// device is an open RDMA device. It implements verbs.Context.
type device struct {
	c    *C.struct_ibv_context
	info verbs.DeviceInfo
	attr verbs.DeviceAttr
	conf Config

	// mu guards the control path: creation, counts and close of objects. It is held during calls
	// of libibverbs that create and destroy.
	mu          sync.Mutex
	open        objects.Counts
	qps         map[*qp]struct{}
	cqs         map[*cq]struct{}
	srqs        map[*srq]struct{}
	closedCalls [numCounters]uint64 // of closed objects
	ahIDs       idSpace

	ahs    *C.struct_goucx_ahs
	events eventQueue

	// gone: the device was removed or has failed. No object is created from then on.
	gone atomic.Bool

	// boundRetries: retry counts are at most maxRetries.
	boundRetries bool
}

// open takes over c.
func open(c *C.struct_ibv_context, info verbs.DeviceInfo, conf Config) (*device, error) {
	d := &device{c: c, info: info, conf: conf, qps: map[*qp]struct{}{}, cqs: map[*cq]struct{}{}, srqs: map[*srq]struct{}{}, ahs: C.goucx_ahs_new()}
	fail := func(err error) (*device, error) {
		C.goucx_ahs_free(d.ahs)
		_, _ = C.ibv_close_device(c)
		return nil, err
	}
	if d.ahs == nil {
		return fail(ucs.ErrNoMemory)
	}
	var a C.struct_ibv_device_attr
	if err := returned(C.ibv_query_device(c, &a)); err != nil {
		return fail(fmt.Errorf("query the device: %w", err))
	}
	most := verbs.MaxSGE
	d.attr = verbs.DeviceAttr{
		NodeGUID: bits.ReverseBytes64(uint64(a.node_guid)), MaxMRSize: uint64(a.max_mr_size),
		MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr), MaxSGE: min(int(a.max_sge), most), MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe),
		MaxMR: int(a.max_mr), MaxPD: int(a.max_pd), MaxAH: limit(int(a.max_ah)), MaxSRQ: int(a.max_srq), MaxSRQWR: int(a.max_srq_wr),
		MaxSRQSGE: min(int(a.max_srq_sge), most), MaxQPRdAtomic: int(a.max_qp_rd_atom), MaxQPInitRdAtomic: int(a.max_qp_init_rd_atom),
		MaxMW: int(a.max_mw), MaxMcastGroups: int(a.max_mcast_grp), MaxMcastAttach: int(a.max_mcast_qp_attach),
		Atomic: verbs.AtomicCap(a.atomic_cap), Ports: int(a.phys_port_cnt), SRQResize: a.device_cap_flags&C.IBV_DEVICE_SRQ_RESIZE != 0,
	}
	var count, period C.uint16_t
	C.goucx_moderation_caps(c, &count, &period)
	d.attr.MaxCQModCount, d.attr.MaxCQModPeriod = int(count), time.Duration(period)*time.Microsecond
	var p C.struct_ibv_port_attr
	if err := returned(C.goucx_query_port(c, 1, &p)); err != nil {
		return fail(fmt.Errorf("query port 1: %w", err))
	}
	d.attr.MaxMessage = uint32(p.max_msg_sz)
	d.boundRetries = a.vendor_id == vendorRXE
	if td, _ := C.goucx_alloc_td(c); td != nil { // no attribute of the device says it
		C.goucx_dealloc_td(td)
	} else {
		d.attr.ThreadDomains.NoTDs = true
	}
	if err := d.probeInline(); err != nil {
		return fail(err)
	}
	if err := d.events.init(c); err != nil {
		return fail(err)
	}
	return d, nil
}

// limit returns a limit of the device. Some drivers report 0 where they have none.
func limit(n int) int {
	if n <= 0 {
		return 1 << 24
	}
	return n
}

// inlineSizes are the inline messages that probeInline requests, until the device grants one.
var inlineSizes = []int{220, 128, verbs.InlineLen, 32, 0}

// probeInline finds the longest inline message: no attribute of the device has it. It creates
// and destroys a queue pair.
func (d *device) probeInline() error {
	pd, err := C.ibv_alloc_pd(d.c)
	if pd == nil {
		return fmt.Errorf("allocate a protection domain: %w", memoryFault(err))
	}
	defer func() { C.ibv_dealloc_pd(pd) }()
	cq, err := C.goucx_create_cq(d.c, 1, 0, nil, nil, 0)
	if cq == nil {
		return fmt.Errorf("create a completion queue: %w", memoryFault(err))
	}
	defer func() { C.ibv_destroy_cq(cq) }()
	for _, n := range inlineSizes {
		a := C.struct_ibv_qp_init_attr{send_cq: cq, recv_cq: cq, qp_type: C.IBV_QPT_RC}
		a.cap = C.struct_ibv_qp_cap{max_send_wr: 1, max_recv_wr: 1, max_send_sge: C.uint32_t(d.attr.MaxSGE), max_recv_sge: 1, max_inline_data: C.uint32_t(n)}
		var q *C.struct_ibv_qp
		if q, err = C.ibv_create_qp(pd, &a); q != nil {
			C.ibv_destroy_qp(q)
			d.attr.MaxInline = n
			return nil
		}
	}
	return fmt.Errorf("create a queue pair: %w", memoryFault(err))
}

// Info returns the name of the device.
func (d *device) Info() verbs.DeviceInfo { return d.info }

// Attr returns the device attributes.
func (d *device) Attr() *verbs.DeviceAttr { return &d.attr }

// admit counts a new object, which the caller creates if the error is nil. The caller holds mu.
func (d *device) admit(k objects.Kind) error {
	if d.gone.Load() {
		return ErrDeviceGone
	}
	return d.open.Admit(k, 0)
}

// Close closes the device. It fails with ucs.ErrBusy while objects of it are open.
func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	first, err := d.open.Close()
	if err != nil {
		return fmt.Errorf("close RDMA device %q: %w", d.info.Name, err)
	}
	if !first {
		return nil
	}
	err = d.events.close()
	C.goucx_ahs_free(d.ahs)
	d.ahs = nil
	if code, no := C.ibv_close_device(d.c); code != 0 {
		err = errors.Join(err, fmt.Errorf("close RDMA device %q: %w", d.info.Name, fault(no)))
	}
	return err
}

// memoryFault is fault for calls that pin memory. With ENOMEM it names the limit.
func memoryFault(err error) error {
	if !errors.Is(err, ucs.ErrNoMemory) {
		err = fault(err)
	}
	if !errors.Is(err, ucs.ErrNoMemory) {
		return err
	}
	most, known := memlock()
	if !known || most == unlimited {
		return err
	}
	return fmt.Errorf("%w: RLIMIT_MEMLOCK is %s: raise it (ulimit -l unlimited, LimitMEMLOCK= of systemd, --ulimit memlock=-1 of docker): %w", ErrMemlock, sizeText(most), err)
}
