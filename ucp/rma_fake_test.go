package ucp_test

import (
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// fake is a transport of a worker to itself whose one-sided operations behave as
// the test says: limited in length, short of resources, ending later.
type fake struct {
	uct.Component
	put, get uct.Limit
	ops      uct.Ops // 0: all of put, get and atomics
	atomics  uct.AtomicSet
	async    bool // operations with a token end in Progress
	credits  int  // operations until NoResource; <0: no end

	failNext   ucs.Status // answer of the next operation; OK: as usual
	eventState ucs.Status // of the next events
	iface      *fakeIface
	calls      []string
	released   int // keys
	regions    map[uint64][]byte
}

func newFake() *fake {
	l := uct.Limit{Short: 8, Bcopy: 100}
	return &fake{
		put: l, get: l, ops: uct.OpsPut | uct.OpsGet | uct.OpAtomics, atomics: uct.AllAtomics,
		credits: -1, regions: make(map[uint64][]byte),
	}
}

func (f *fake) Name() string             { return "fake" }
func (f *fake) Aliases() []string        { return nil }
func (f *fake) Settings() []config.Table { return nil }

func (f *fake) Domains(*config.Set) ([]uct.DomainInfo, []uct.Refusal) {
	return []uct.DomainInfo{{Component: "fake", Name: "fake0"}}, nil
}

func (f *fake) OpenDomain(uct.DomainInfo, uct.DomainConfig) (uct.Domain, error) {
	return fakeDomain{f}, nil
}

type fakeDomain struct{ f *fake }

func (d fakeDomain) Attr() *uct.DomainAttr { return &uct.DomainAttr{Register: true} }

func (d fakeDomain) Ifaces() ([]uct.IfaceInfo, []uct.Refusal) {
	return []uct.IfaceInfo{{Transport: "fake", ID: 77, Device: "fake0", Kind: uct.DeviceNet}}, nil
}

func (d fakeDomain) OpenIface(_ uct.IfaceInfo, c uct.IfaceConfig) (uct.Iface, error) {
	d.f.iface = &fakeIface{f: d.f, h: c.Handler, worker: c.Worker}
	return d.f.iface, nil
}

func (d fakeDomain) Allocate(int, uct.MemFlags) (uct.Mem, error) { return nil, ucs.ErrUnsupported }

func (d fakeDomain) Register(b []byte, _ uct.MemFlags) (uct.Mem, error) {
	m := &fakeMem{f: d.f, b: b, n: uint64(len(d.f.regions) + 1)}
	d.f.regions[m.n] = b
	return m, nil
}

func (d fakeDomain) UnpackKey(key []byte) (uct.RKey, error) {
	n := binary.LittleEndian.Uint64(key)
	if d.f.regions[n] == nil {
		return 0, fmt.Errorf("no region %d: %w", n, ucs.ErrRemoteAccess)
	}
	return uct.RKey(n), nil
}

func (d fakeDomain) KeyAttr(uct.RKey) uct.KeyAttr {
	return uct.KeyAttr{Ops: d.f.ops, Atomic32: d.f.atomics, Atomic64: d.f.atomics}
}

func (d fakeDomain) ReleaseKey(uct.RKey) { d.f.released++ }
func (d fakeDomain) Close() error        { return nil }

type fakeMem struct {
	f *fake
	b []byte
	n uint64
}

func (m *fakeMem) Bytes() []byte             { return m.b }
func (m *fakeMem) AppendKey(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, m.n) }

func (m *fakeMem) Revoke() ucs.Status {
	delete(m.f.regions, m.n)
	return ucs.OK
}

func (m *fakeMem) Close() error { return nil }

type fakeIface struct {
	uct.Iface
	f       *fake
	h       uct.Handler
	worker  uct.UUID
	ep      *fakeEP
	active  int
	events  []uct.Event
	pending []uct.Token
}

func (i *fakeIface) Attr() *uct.IfaceAttr {
	return &uct.IfaceAttr{
		Ops: i.f.ops | uct.OpsAM | uct.OpPending | uct.OpFlushLocal | uct.OpFlushRemote | uct.OpFence,
		AM:  uct.Limit{Short: 64, Bcopy: 4096}, Put: i.f.put, Get: i.f.get,
		Estimate: uct.Estimate{Dedicated: 1e9, LatencyNS: 1},
	}
}

func (i *fakeIface) DeviceAddress(b []byte) []byte { return b }
func (i *fakeIface) Address(b []byte) []byte       { return append(b, i.worker[:]...) }

func (i *fakeIface) Reachable(a uct.Address) (bool, string) {
	return string(a.Iface) == string(i.worker[:]), "another worker"
}

func (i *fakeIface) NewEndpoint(uct.Address) (uct.Endpoint, error) {
	i.ep = &fakeEP{i: i, f: i.f}
	return i.ep, nil
}

// Progress delivers the events, and where there are credits what waits.
func (i *fakeIface) Progress(int) int {
	es := i.events
	i.events = nil
	if len(es) > 0 {
		i.h.HandleEvents(es)
	}
	n := len(es)
	if len(i.pending) > 0 && i.f.credits != 0 {
		ts := i.pending
		i.pending = nil
		k := i.h.HandlePending(ts)
		i.pending = append(ts[k:len(ts):len(ts)], i.pending...)
		n += k
	}
	return n
}

func (i *fakeIface) EventFD() int                 { return -1 }
func (i *fakeIface) Arm(uct.EventKind) ucs.Status { return ucs.Unsupported }
func (i *fakeIface) Activate()                    { i.active++ }
func (i *fakeIface) Deactivate()                  { i.active-- }
func (i *fakeIface) ActiveEndpoints() int         { return i.active }
func (i *fakeIface) Flush(uct.Token) ucs.Status   { return ucs.OK }
func (i *fakeIface) Fence() ucs.Status            { return ucs.OK }
func (i *fakeIface) Close() error                 { return nil }

type fakeEP struct {
	uct.Endpoint
	i      *fakeIface
	f      *fake
	closed bool
}

// Active messages, by which ucp introduces itself, go nowhere.

func (e *fakeEP) AMShort(uct.AMID, uint64, []byte) ucs.Status { return ucs.OK }

func (e *fakeEP) ReserveAM(_ uct.AMID, _ uint64, n int) ([]byte, ucs.Status) {
	return make([]byte, n), ucs.OK
}

func (e *fakeEP) CommitAM(int) {}

func (e *fakeEP) Abort() {}

// begin answers an operation before it touches memory, and notes it.
func (e *fakeEP) begin(format string, args ...any) ucs.Status {
	if st := e.f.failNext; st != ucs.OK {
		e.f.failNext = ucs.OK
		return st
	}
	if e.f.credits == 0 {
		return ucs.NoResource
	}
	e.f.credits--
	e.f.calls = append(e.f.calls, fmt.Sprintf(format, args...))
	return ucs.OK
}

// end answers an operation with a token that took effect.
func (e *fakeEP) end(t uct.Token, v uint64) ucs.Status {
	if !e.f.async {
		return ucs.OK
	}
	e.i.events = append(e.i.events, uct.Event{Token: t, Value: v, Status: e.f.eventState})
	return ucs.InProgress
}

// mem is the n bytes at addr of a region.
func (e *fakeEP) mem(addr uint64, n int, k uct.RKey) []byte {
	b := e.f.regions[uint64(k)]
	off := addr - addressOf(b)
	return b[off:][:n]
}

func (e *fakeEP) PutShort(p []byte, addr uint64, k uct.RKey) ucs.Status {
	if st := e.begin("put short %d", len(p)); st != ucs.OK {
		return st
	}
	copy(e.mem(addr, len(p), k), p)
	return ucs.OK
}

func (e *fakeEP) PutUint64(v, addr uint64, k uct.RKey) ucs.Status {
	if st := e.begin("put uint64"); st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(e.mem(addr, 8, k), v)
	return ucs.OK
}

func (e *fakeEP) PutBcopy(p []byte, addr uint64, k uct.RKey, t uct.Token) ucs.Status {
	if st := e.begin("put bcopy %d", len(p)); st != ucs.OK {
		return st
	}
	copy(e.mem(addr, len(p), k), p)
	return e.end(t, 0)
}

func (e *fakeEP) GetShort(p []byte, addr uint64, k uct.RKey) ucs.Status {
	if st := e.begin("get short %d", len(p)); st != ucs.OK {
		return st
	}
	copy(p, e.mem(addr, len(p), k))
	return ucs.OK
}

func (e *fakeEP) GetUint64(addr uint64, k uct.RKey, t uct.Token) (uint64, ucs.Status) {
	if st := e.begin("get uint64"); st != ucs.OK {
		return 0, st
	}
	v := binary.LittleEndian.Uint64(e.mem(addr, 8, k))
	return v, e.end(t, v)
}

func (e *fakeEP) GetBcopy(p []byte, addr uint64, k uct.RKey, t uct.Token) ucs.Status {
	if st := e.begin("get bcopy %d", len(p)); st != ucs.OK {
		return st
	}
	copy(p, e.mem(addr, len(p), k))
	return e.end(t, 0)
}

// Only add is carried out; what is sent in which form is what counts here.
func (e *fakeEP) Atomic32(op uct.AtomicOp, v uint32, addr uint64, k uct.RKey) ucs.Status {
	if st := e.begin("%v 32 %d", op, v); st != ucs.OK {
		return st
	}
	m := e.mem(addr, 4, k)
	binary.LittleEndian.PutUint32(m, binary.LittleEndian.Uint32(m)+v)
	return ucs.OK
}

func (e *fakeEP) Atomic64(op uct.AtomicOp, v, addr uint64, k uct.RKey) ucs.Status {
	if st := e.begin("%v 64 %d", op, v); st != ucs.OK {
		return st
	}
	m := e.mem(addr, 8, k)
	binary.LittleEndian.PutUint64(m, binary.LittleEndian.Uint64(m)+v)
	return ucs.OK
}

func (e *fakeEP) Fetch32(op uct.AtomicOp, v, cmp uint32, addr uint64, k uct.RKey, t uct.Token) (uint32, ucs.Status) {
	if st := e.begin("fetch %v 32 %d %d", op, v, cmp); st != ucs.OK {
		return 0, st
	}
	m := e.mem(addr, 4, k)
	old := binary.LittleEndian.Uint32(m)
	binary.LittleEndian.PutUint32(m, old+v)
	return old, e.end(t, uint64(old))
}

func (e *fakeEP) Fetch64(op uct.AtomicOp, v, cmp, addr uint64, k uct.RKey, t uct.Token) (uint64, ucs.Status) {
	if st := e.begin("fetch %v 64 %d %d", op, v, cmp); st != ucs.OK {
		return 0, st
	}
	m := e.mem(addr, 8, k)
	old := binary.LittleEndian.Uint64(m)
	binary.LittleEndian.PutUint64(m, old+v)
	return old, e.end(t, old)
}

func (e *fakeEP) PendingAdd(t uct.Token) ucs.Status {
	if e.f.credits != 0 {
		return ucs.Busy
	}
	e.i.pending = append(e.i.pending, t)
	return ucs.OK
}

func (e *fakeEP) PendingPurge(f func(uct.Token)) {
	ts := e.i.pending
	e.i.pending = nil
	for _, t := range ts {
		f(t)
	}
}

// Flush ends behind the events that are due, and waits behind what is pending.
func (e *fakeEP) Flush(_ uct.FlushKind, t uct.Token) ucs.Status {
	switch {
	case e.f.failNext != ucs.OK:
		return e.f.failNext
	case len(e.i.pending) > 0 && e.f.credits == 0:
		return ucs.NoResource
	case len(e.i.events) == 0:
		return ucs.OK
	}
	e.i.events = append(e.i.events, uct.Event{Token: t})
	return ucs.InProgress
}

func (e *fakeEP) Fence() ucs.Status { return ucs.OK }

// Check shows a failure that is not reported yet.
func (e *fakeEP) Check(uct.Token) ucs.Status { return e.f.failNext }

func (e *fakeEP) Close() { e.closed = true }
