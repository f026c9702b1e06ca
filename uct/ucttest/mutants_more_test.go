package ucttest

import (
	"os"
	"runtime"
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

var mutants = slices.Concat(amMutants, pendingMutants, rmaMutants, otherMutants)

// pendingHook changes what is offered to the handler.
type pendingHook struct {
	uct.Handler
	offer func(h uct.Handler, ts []uct.Token) int
}

func (h pendingHook) HandlePending(ts []uct.Token) int { return h.offer(h.Handler, ts) }

func offering(f func(h uct.Handler, ts []uct.Token) int) wraps {
	return onHandler(func(h uct.Handler) uct.Handler { return pendingHook{h, f} })
}

type (
	neverBusy     struct{ uct.Endpoint }
	alwaysBusy    struct{ uct.Endpoint }
	queues        struct{ uct.Endpoint }
	purgesReverse struct{ uct.Endpoint }
	putsInQueue   struct{ uct.Endpoint }
	startsLate    struct {
		uct.Endpoint
		used bool
	}
)

func (e neverBusy) PendingAdd(t uct.Token) uct.Status {
	e.Endpoint.PendingAdd(t)
	return ucs.OK
}

func (e alwaysBusy) PendingAdd(uct.Token) uct.Status { return ucs.Busy }

func (e *startsLate) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	e.used = true
	return e.Endpoint.AMShort(id, hdr, p)
}

func (e *startsLate) PendingAdd(t uct.Token) uct.Status {
	if e.used {
		return e.Endpoint.PendingAdd(t)
	}
	return ucs.OK
}

func (e queues) AMUint64(id uct.AMID, hdr, v uint64) uct.Status {
	e.Endpoint.AMUint64(id, hdr, v)
	return ucs.OK
}

func (e purgesReverse) PendingPurge(f func(uct.Token)) {
	var ts []uct.Token
	e.Endpoint.PendingPurge(func(t uct.Token) { ts = append(ts, t) })
	for _, t := range slices.Backward(ts) {
		f(t)
	}
}

func (e putsInQueue) PutUint64(v, addr uint64, k uct.RKey) uct.Status {
	if st := e.Endpoint.PutUint64(v, addr, k); st != ucs.NoResource {
		return st
	}
	return ucs.OK
}

var pendingMutants = []mutant{
	{"tokens reversed", "pending/order", offering(func(h uct.Handler, ts []uct.Token) int {
		slices.Reverse(ts)
		return h.HandlePending(ts)
	})},
	{"token offered again", "pending/partial", offering(func(h uct.Handler, ts []uct.Token) int {
		return max(h.HandlePending(ts)-1, 0)
	})},
	{"token lost", "pending/partial", offering(func(h uct.Handler, ts []uct.Token) int {
		return h.HandlePending(ts) + 1
	})},
	{"tokens never offered", "pending/order", offering(func(uct.Handler, []uct.Token) int { return 0 })},
	{"never busy", "pending/busy", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return neverBusy{e} })},
	{"always busy", "pending/order", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return alwaysBusy{e} })},
	{"unused endpoint never starts", "pending/first", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return &startsLate{Endpoint: e} })},
	{"send queued silently", "pending/refuses-others", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return queues{e} })},
	{"put while tokens wait", "pending/refuses-others", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return putsInQueue{e} })},
	{"purge reversed", "pending/purge", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return purgesReverse{e} })},
}

type (
	writesBeyond struct{ uct.Endpoint }
	wrongOld     struct{ uct.Endpoint }
	alwaysSwaps  struct{ uct.Endpoint }
	notAtomic    struct{ uct.Endpoint }
	rounds       struct{ uct.Endpoint }
	clips        struct{ uct.Endpoint }
	swapsPosted  struct{ uct.Endpoint }
	halfWord     struct{ uct.Endpoint }
)

func (e writesBeyond) PutShort(p []byte, addr uint64, k uct.RKey) uct.Status {
	return e.Endpoint.PutShort(append(p[:len(p):len(p)], 0), addr, k)
}

func (e wrongOld) Fetch64(op uct.AtomicOp, v, cmp, addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status) {
	old, st := e.Endpoint.Fetch64(op, v, cmp, addr, k, t)
	if op == uct.AtomicAdd {
		old += v
	}
	return old, st
}

func (e alwaysSwaps) Fetch32(op uct.AtomicOp, v, cmp uint32, addr uint64, k uct.RKey, t uct.Token) (uint32, uct.Status) {
	if op == uct.AtomicCompareSwap {
		op = uct.AtomicSwap
	}
	return e.Endpoint.Fetch32(op, v, cmp, addr, k, t)
}

func (e notAtomic) Fetch64(op uct.AtomicOp, v, cmp, addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status) {
	old, st := e.GetUint64(addr, k, t)
	runtime.Gosched()
	if st == ucs.OK {
		st = e.PutUint64(oracle(op, old, v, cmp), addr, k)
	}
	return old, st
}

func (e rounds) Atomic64(op uct.AtomicOp, v, addr uint64, k uct.RKey) uct.Status {
	return e.Endpoint.Atomic64(op, v, addr&^7, k)
}

// clips makes too long an access fit from its front.
func (e clips) GetBcopy(p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	st := e.Endpoint.GetBcopy(p, addr, k, t)
	if st != ucs.OK && len(p) > 0 {
		p[0] = 0
	}
	return st
}

func (e swapsPosted) Atomic64(op uct.AtomicOp, v, addr uint64, k uct.RKey) uct.Status {
	if op == uct.AtomicSwap {
		_, st := e.Fetch64(op, v, 0, addr, k, 0)
		return st
	}
	return e.Endpoint.Atomic64(op, v, addr, k)
}

func (e halfWord) PutUint64(v, addr uint64, k uct.RKey) uct.Status {
	return e.Endpoint.PutUint64(v&0xffffffff, addr, k)
}

// Faults of memory and keys.
type (
	neverRevokes struct{ uct.Mem }
	trimsKeys    struct{ uct.Domain }
	promises     struct{ uct.Domain }
	holdsNothing struct{ uct.Domain }
)

func (neverRevokes) Revoke() uct.Status { return ucs.OK }

func (d trimsKeys) UnpackKey(b []byte) (uct.RKey, error) {
	if len(b) > 60 {
		b = b[:60]
	}
	return d.Domain.UnpackKey(b)
}

func (d promises) KeyAttr(k uct.RKey) uct.KeyAttr {
	a := d.Domain.KeyAttr(k)
	a.Ops |= uct.OpsPut | uct.OpsGet
	return a
}

func (d holdsNothing) Register(b []byte, f uct.MemFlags) (uct.Mem, error) {
	return d.Domain.Register(append([]byte(nil), b...), f)
}

var rmaMutants = []mutant{
	{"put beyond its end", "put/sizes", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return writesBeyond{e} })},
	{"half a word", "put/uint64", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return halfWord{e} })},
	{"refused get writes", "rma/range", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return clips{e} })},
	{"fetched the new value", "atomic/fetch64", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return wrongOld{e} })},
	{"not atomic", "atomic/concurrent-adds", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return notAtomic{e} })},
	{"compare forgotten", "atomic/fetch32", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return alwaysSwaps{e} })},
	{"unaligned rounded", "atomic/unaligned", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return rounds{e} })},
	{"unlisted done", "atomic/unlisted", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return swapsPosted{e} })},
	{"revoke forgotten", "rma/revoked", wraps{mem: func(m uct.Mem) uct.Mem { return neverRevokes{m} }}},
	{"key attributes", "rma/flags", onDomain(func(d uct.Domain) uct.Domain { return promises{d} })},
	{"longer key taken", "key/damaged", onDomain(func(d uct.Domain) uct.Domain { return trimsKeys{d} })},
	{"registers a copy", "mem/register", onDomain(func(d uct.Domain) uct.Domain { return holdsNothing{d} })},
}

// Faults of flush, events, counts and addresses.
type (
	flushHangs struct{ uct.Endpoint }
	armsAlways struct{ uct.Iface }
	neverWakes struct{ uct.Iface }
	neverQuiet struct{ uct.Iface }
	counts     struct{ uct.Iface }
	takesAll   struct{ uct.Iface }
)

func (flushHangs) Flush(uct.FlushKind, uct.Token) uct.Status { return ucs.InProgress }

func (i armsAlways) Arm(k uct.EventKind) uct.Status {
	i.Iface.Arm(k)
	return ucs.OK
}

func (i neverWakes) Arm(uct.EventKind) uct.Status { return ucs.OK }

// null is always readable.
var null, _ = os.Open(os.DevNull)

func (neverQuiet) EventFD() int { return int(null.Fd()) }

func (counts) Deactivate() {}

func (i takesAll) NewEndpoint(uct.Address) (uct.Endpoint, error) {
	return i.Iface.NewEndpoint(uct.Address{Iface: i.Address(nil)})
}

var otherMutants = []mutant{
	{"flush never ends", "flush/local", onEndpoint(func(e uct.Endpoint) uct.Endpoint { return flushHangs{e} })},
	{"armed over a message", "event/busy", onIface(func(i uct.Iface) uct.Iface { return armsAlways{i} })},
	{"sleeper not woken", "event/message", onIface(func(i uct.Iface) uct.Iface { return neverWakes{i} })},
	{"readable without an event", "event/idle", onIface(func(i uct.Iface) uct.Iface { return neverQuiet{i} })},
	{"active count", "active/count", onIface(func(i uct.Iface) uct.Iface { return counts{i} })},
	{"damaged address taken", "address/damaged", onIface(func(i uct.Iface) uct.Iface { return takesAll{i} })},
}
