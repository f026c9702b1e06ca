package ucp

import (
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap/zapcore"

	"github.com/goucx/goucx/ucp/internal/keycodec"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// keyResolver finds the lanes of a key.
type keyResolver struct {
	w       *thread
	key     keycodec.View
	view    wireup.View
	ranked  wireup.Plan
	refused []uct.Refusal
	ranking int // how many of refused the ranking refused
	errs    []error
	lanes   map[[2]int]*keyLane // unpacked keys by iface and entry of the peer's address; nil: not possible
}

// plan checks that the key belongs to the context of the endpoint's peer. It connects the
// endpoint and ranks the candidate lanes to the peer.
func (r *keyResolver) plan(e Endpoint) error {
	e.t.lock()
	defer e.t.unlock()
	w := r.w
	slot := w.endpoint(e)
	if slot == 0 {
		return e.closedErr()
	}
	r.view = w.peers.View(w.eps[slot].peer)
	if r.key.Owner != r.view.Owner() {
		return fmt.Errorf("the key is of %v, the endpoint leads to a worker of %v: %w", r.key.Owner, r.view.Owner(), ErrInvalid)
	}
	if st := w.connect(slot); st != ucs.OK {
		return w.reason(slot, st)
	}
	r.ranked, r.refused = w.rankLanes(w.eps[slot].peer, r.view, wireup.ForRMA, wireup.ForAMO, wireup.ForAM)
	r.ranking = len(r.refused)
	return nil
}

// resolve sets the lanes of k.
func (r *keyResolver) resolve(k *RemoteKey) {
	if k.access&(uct.MemRemotePut|uct.MemRemoteGet) != 0 {
		if k.rma = r.first(wireup.ForRMA, r.lacksRMA); k.rma == nil {
			k.rma = r.emulation(nil)
		}
	}
	if k.access&uct.MemRemoteAtomic != 0 {
		k.atomic = r.withEmulation(r.first(wireup.ForAMO, r.lacksAMO), k.rma)
	}
	if k.atomic == nil {
		k.noAMO = fmt.Sprint(r.refused)
	}
}

// first returns the best lane for a purpose for which lacks returns no reason.
func (r *keyResolver) first(p wireup.Purpose, lacks func(*keyLane) string) *keyLane {
	for _, c := range r.ranked[p] {
		l := r.unpack(c)
		if l == nil {
			continue
		}
		if why := lacks(l); why != "" {
			r.refuse(c.Local, fmt.Sprintf("%v: %s", p, why))
			continue
		}
		return l
	}
	return nil
}

// emulation returns the lane for emulation: the owner's worker carries out the
// operations, which are sent as active messages. It uses the transport of beside if
// there is one, else the best. It returns nil if the key has no entry for emulation, or
// the owner is on this host.
func (r *keyResolver) emulation(beside *keyLane) *keyLane {
	key := uct.RKey(r.key.EmulKey())
	if key == 0 {
		return nil
	}
	var c wireup.Candidate
	switch ranked := r.ranked[wireup.ForAM]; {
	case beside != nil && beside.carriesEmulation():
		c.Local, c.Remote = beside.local, beside.remote
	case len(ranked) > 0:
		c = ranked[0]
	default:
		return nil
	}
	if beside == nil && r.w.ifaces[c.Local].info.Kind != uct.DeviceNet {
		return nil // within a host, report why no transport reaches the memory
	}
	l := &keyLane{
		local: c.Local, remote: c.Remote, iface: r.w.ifaces[c.Local].iface.Attr(),
		rkey: key, emulKey: key, emulOnly: true,
	}
	l.setEmulationLimits()
	return l
}

// setEmulationLimits sets the limits of a lane whose operations are all emulated.
func (l *keyLane) setEmulationLimits() {
	n := uint64(emulLimit(l.iface.AM.Bcopy))
	l.put, l.get = forms{short: n, bcopy: n}, forms{bcopy: n}
}

// withEmulation returns a lane for all atomics. It is l, which may be nil, with emulation for
// the atomics that its transport lacks. If atomics on the memory are performed by its
// device, the owner's CPU must not perform any: they would not be atomic with the device's.
func (r *keyResolver) withEmulation(l, rma *keyLane) *keyLane {
	switch {
	case r.key.Features&keycodec.DeviceAtomics != 0:
	case l == nil && rma != nil && rma.emulOnly:
		return rma
	case l == nil:
		return r.emulation(rma)
	case l.carriesEmulation() && (l.attr.Atomic32 != uct.AllAtomics || l.attr.Atomic64 != uct.AllAtomics):
		l.emulKey = uct.RKey(r.key.EmulKey())
	}
	return l
}

// carriesEmulation reports whether the lane's active messages can carry emulated operations.
func (l *keyLane) carriesEmulation() bool {
	return l.iface.Ops.Has(uct.OpAMBcopy|uct.OpPending) && emulLimit(l.iface.AM.Bcopy) >= wire.AtomicLen
}

// unpack returns the lane of candidate c with its key. It returns nil if the transport
// cannot reach the memory.
func (r *keyResolver) unpack(c wireup.Candidate) *keyLane {
	pair := [2]int{c.Local, c.Remote}
	if l, ok := r.lanes[pair]; ok {
		return l
	}
	wi := r.w.ifaces[c.Local]
	r.lanes[pair] = nil
	domain := r.view.Entries[c.Remote].Device
	n := slices.IndexFunc(r.key.Entries, func(e keycodec.Entry) bool { return e.Domain == domain && e.Transport != keycodec.Emulated })
	if n < 0 {
		r.refuse(c.Local, "the owner did not register the memory with it")
		return nil
	}
	k, err := wi.domain.UnpackKey(r.key.Entries[n].Key)
	if err != nil {
		r.errs = append(r.errs, err)
		r.refuse(c.Local, err.Error())
		return nil
	}
	l := &keyLane{
		local: c.Local, remote: c.Remote, domain: wi.domain, rkey: k,
		attr: wi.domain.KeyAttr(k), iface: wi.iface.Attr(),
	}
	if r.key.Features&keycodec.DeviceAtomics == 0 && l.attr.Bytes == nil {
		l.failoverKey = uct.RKey(r.key.EmulKey())
	}
	ops := l.attr.Ops & l.iface.Ops
	l.put = formsOf(ops, uct.OpPutShort, uct.OpPutBcopy, l.iface.Put)
	l.get = formsOf(ops, uct.OpGetShort, uct.OpGetBcopy, l.iface.Get)
	l.put.zcopy = ops.Has(uct.OpPutZcopy) && wi.zcopySavesCopy(l.iface.Put)
	l.get.zcopy = ops.Has(uct.OpGetZcopy) && wi.zcopySavesCopy(l.iface.Get)
	r.lanes[pair] = l
	return l
}

func formsOf(ops, short, bcopy uct.Ops, l uct.Limit) (f forms) {
	if ops.Has(short) {
		f.short = uint64(max(l.Short, 0))
	}
	if ops.Has(bcopy) {
		f.bcopy = uint64(max(l.Bcopy, 0))
	}
	return f
}

func (r *keyResolver) lacksRMA(l *keyLane) string {
	switch a := r.key.Access; {
	case a&uct.MemRemotePut != 0 && l.put.none():
		return "does not put to this memory"
	case a&uct.MemRemoteGet != 0 && l.get.none():
		return "does not get from this memory"
	}
	return ""
}

func (r *keyResolver) lacksAMO(l *keyLane) string {
	device := r.key.Features&keycodec.DeviceAtomics != 0
	switch {
	case l.attr.Atomic32|l.attr.Atomic64 == 0:
		return "does not reach this memory"
	case device && !l.iface.DeviceAtomics:
		return "the owner's device performs atomics on this memory, this transport uses the CPU"
	case !device && l.iface.DeviceAtomics:
		return "the owner's CPU performs atomics on this memory, this transport uses its device"
	}
	return ""
}

func (r *keyResolver) refuse(port int, reason string) {
	i := r.w.ifaces[port].info
	r.refused = append(r.refused, uct.Refusal{Transport: i.Transport, Device: i.Device, Reason: reason})
}

// log logs at level debug which lanes carry the operations of k, and why others do not.
func (r *keyResolver) log(k *RemoteKey) {
	log := r.w.ctx.log
	if !log.Core().Enabled(zapcore.DebugLevel) {
		return
	}
	name := shortID(r.view.Worker)
	for p, l := range map[wireup.Purpose]*keyLane{wireup.ForRMA: k.rma, wireup.ForAMO: k.atomic} {
		by := "none"
		if l != nil {
			by = r.w.laneName(l.lane)
		}
		if l != nil && l.emulOnly {
			by += ", emulated by messages"
		}
		log.Debug(fmt.Sprintf("key of worker %s: lane for %v: %s", name, p, by))
	}
	for _, why := range r.refused[r.ranking:] {
		log.Debug(fmt.Sprintf("key of worker %s: not used: %s", name, why))
	}
}

// reason returns the error for a key that no transport resolves. If a transport's error has
// a sentinel, it is that one, else ErrUnreachable.
func (r *keyResolver) reason() error {
	for _, st := range []ucs.Status{ucs.RemoteAccess, ucs.Timeout, ucs.InvalidParam} {
		if slices.ContainsFunc(r.errs, func(err error) bool { return errors.Is(err, st.Err()) }) {
			return statusErr(st)
		}
	}
	return ErrUnreachable
}

// release releases the unpacked keys that k does not use. k may be nil.
func (r *keyResolver) release(k *RemoteKey) {
	for _, l := range r.lanes {
		if l != nil && (k == nil || l != k.rma && l != k.atomic) {
			l.domain.ReleaseKey(l.rkey)
		}
	}
}
