package ucp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/goucx/goucx/ucp/internal/keycodec"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// Key is a packed remote key: plain bytes that a program passes to a peer, which
// unpacks them with [Endpoint.UnpackKey]. docs/wire/key.md specifies the format. A
// checksum detects damage.
type Key []byte

// String describes the memory of the key, for logs.
func (k Key) String() string {
	v, err := keycodec.Parse(k)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("key to %d bytes at %#x of %v", v.Len, v.Base, v.Owner)
}

// RemoteKey is the right to access a peer's memory. It belongs to the Endpoint that unpacked it
// and is closed with it. Offsets count from the first byte of the memory. They are checked
// locally, before anything is sent. The methods have the concurrency of the Worker.
//
// After Close, all operations fail with ErrClosed. So do those of a nil RemoteKey, which
// UnpackKey returns with an error. Only put and get on a nil RemoteKey panic: a check of
// the pointer would slow down each of them.
type RemoteKey struct {
	// The fields that the fast paths read. The limits are 0 if every call must take the
	// slow path: with ThreadMulti, without the access right, and after Close.
	put        uint64 // longest put by one short operation, at most size
	size, base uint64
	words      uct.WordPutter // of ep; slowAtomics: use the slow path
	rkey       uct.RKey
	ep         uct.Endpoint
	put64      uint64       // number of offsets at which PutUint64 is in bounds
	get, get64 uint64       // same as put and put64, for gets
	amo        uct.Endpoint // slowAtomics: use the slow path
	amoKey     uct.RKey

	t      *thread
	e      Endpoint
	access uct.MemFlags
	rma    *keyLane // lane of put and get; nil: none
	atomic *keyLane // lane of atomics; may be rma; nil: none
	noAMO  string   // why atomic is nil
	packed Key      // for RemoteKey.On
	failed error    // why a Thread could not resolve the key; every operation returns it
	closed bool
}

// keyWords is the uct.WordPutter of a key whose endpoint is none. It checks the bounds itself.
type keyWords RemoteKey

func (k *keyWords) TryPutUint64(v, addr uint64, key uct.RKey) bool {
	return addr-k.base < k.put64 && k.ep.PutUint64(v, addr, key) == ucs.OK
}

// keyLane is a lane with the key by which its transport reaches the memory.
type keyLane struct {
	local  int // index in Worker.ifaces
	remote int // index of the entry in the peer's address
	domain uct.Domain
	rkey   uct.RKey
	attr   uct.KeyAttr
	iface  *uct.IfaceAttr

	// Emulation uses the key sw, for the atomics that attr lacks, or with emulOnly for all
	// operations. With emulOnly, rkey equals sw and domain is nil.
	emulKey  uct.RKey // 0: no operation is emulated
	emulOnly bool
	// failoverKey is the key for emulation if the lane fails over; 0: emulation
	// is not possible.
	failoverKey uct.RKey

	lane uint32 // index in thread.lanes
	put  forms
	get  forms
}

// forms are the limits of short and bcopy operations in bytes; 0: the form is not
// available. Longer transfers are split, or with zcopy read from and written to the
// caller's memory.
type forms struct {
	short, bcopy uint64
	zcopy        bool
}

// UnpackKey resolves a packed key. It finds the lane to the memory, the transport's key and
// the limits, once. It connects the endpoint. It may request the memory's descriptor from
// the owner's process, with a time-out.
//
// Errors: ErrInvalid if the key is damaged or belongs to another context than the
// endpoint's peer. Any worker of the owner's context will do. ErrUnreachable has the reason
// of every transport. ErrRemoteAccess: the memory was closed in the meantime. ErrUnsupported:
// the context was opened without FeatureRMA and FeatureAtomics. If the endpoint failed, its
// own error.
func (e Endpoint) UnpackKey(key Key) (*RemoteKey, error) {
	v, err := keycodec.Parse(key)
	if err != nil {
		return nil, fmt.Errorf("unpack key: %w", err)
	}
	if e.t == nil {
		return nil, fmt.Errorf("unpack key: %w", ErrClosed)
	}
	features := e.t.ctx.features
	if features.access() == 0 {
		return nil, fmt.Errorf("unpack key: %w", statusErr(features.has(FeatureRMA)))
	}
	v.Access &= features.access()
	r := keyResolver{w: e.t, key: v, lanes: make(map[[2]int]*keyLane)}
	if err := r.plan(e); err != nil {
		return nil, fmt.Errorf("unpack key: %w", err)
	}
	k := &RemoteKey{t: e.t, e: e, size: v.Len, base: v.Base, access: v.Access, amo: slowAtomics{}, words: slowAtomics{}, packed: slices.Clone(key)}
	if v.Len > 0 {
		r.resolve(k) // not under the worker's lock: it may wait for the owner
	}
	if err := r.attach(k); err != nil {
		r.release(nil)
		return nil, fmt.Errorf("unpack key to worker %s: %w", shortID(r.view.Worker), err)
	}
	return k, nil
}

// attach opens the lanes of k, adds k to its endpoint and opens the fast paths.
func (r *keyResolver) attach(k *RemoteKey) error {
	unreached := k.rma == nil && k.atomic == nil
	// If a transport that requested the descriptor from the owner got a refusal or no
	// reply, the memory is closed or the owner is dead. A transport that does not ask would
	// only hide that.
	why := r.reason()
	ownerFailed := errors.Is(why, ErrRemoteAccess) || errors.Is(why, ErrTimeout)
	if k.size > 0 && k.access&uct.MemRemote != 0 && (unreached || ownerFailed) {
		return fmt.Errorf("%w: %v", r.reason(), r.refused)
	}
	k.t.lock()
	defer k.t.unlock()
	w := r.w
	slot := w.endpoint(k.e)
	if slot == 0 {
		return ErrClosed
	}
	var opened []uint32
	for _, l := range k.lanes() {
		lane, err := w.openLane(w.eps[slot].peer, &r.view, wireup.Candidate{Local: l.local, Remote: l.remote})
		if err != nil {
			for _, i := range opened {
				w.releaseLane(i)
			}
			return err
		}
		l.lane = lane
		opened = append(opened, lane)
		if l.emulKey != 0 {
			w.sendAddress(lane)
			w.emulLane(lane)
		}
	}
	w.cold.own(slot, k)
	r.release(k)
	r.log(k)
	k.openFast()
	return nil
}

// lanes returns the lanes of k, each once.
func (k *RemoteKey) lanes() []*keyLane {
	var ls []*keyLane
	if k.rma != nil {
		ls = append(ls, k.rma)
	}
	if k.atomic != nil && k.atomic != k.rma {
		ls = append(ls, k.atomic)
	}
	return ls
}

// openFast sets the fields that the fast paths read.
func (k *RemoteKey) openFast() {
	if k.t.locked || k.t.eps[k.t.endpoint(k.e)].status != ucs.OK {
		return
	}
	for _, l := range [...]*keyLane{k.rma, k.atomic} {
		if l != nil && !l.emulOnly && k.t.lanes[l.lane].stalledEp() != nil {
			return // until the lane is resumed
		}
	}
	words := max(k.size, 7) - 7
	if l := k.rma; l != nil {
		k.ep, k.rkey = k.endpoint(l), l.rkey
		if k.access&uct.MemRemotePut != 0 && l.put.short >= 8 {
			k.put, k.put64 = min(l.put.short, k.size), words
		}
		if k.access&uct.MemRemoteGet != 0 && l.get.short >= 8 {
			k.get, k.get64 = min(l.get.short, k.size), words
		}
	}
	if l := k.atomic; l != nil && (l.emulKey == 0 || l.emulOnly) { // otherwise each atomic has to choose between transport and emulation
		k.amo, k.amoKey = k.endpoint(l), l.rkey
	}
	if !rowKeyResolve.Get(k.t.ctx.settings) {
		if k.rma != nil && !k.rma.emulOnly {
			k.ep = k.perOp(k.rma)
		}
		if k.atomic != nil && k.atomic.emulKey == 0 {
			k.amo = k.perOp(k.atomic)
		}
	}
	if k.words = (*keyWords)(k); k.put64 > 0 {
		if words, ok := k.ep.(uct.WordPutter); ok {
			k.words = words
		}
	}
}

// endpoint returns the uct.Endpoint that carries out the operations of l.
func (k *RemoteKey) endpoint(l *keyLane) uct.Endpoint {
	if l.emulOnly {
		return k.t.lanes[l.lane].emul
	}
	return k.t.lanes[l.lane].ep
}

// closeFast closes the fast paths: each call takes the slow path then.
func (k *RemoteKey) closeFast() {
	if k.t.locked { // the fast paths were never open, and they read the fields without the lock
		return
	}
	k.put, k.put64, k.get, k.get64 = 0, 0, 0, 0
	k.amo, k.words = slowAtomics{}, slowAtomics{}
}

// Len returns the size of the memory in bytes.
func (k *RemoteKey) Len() uint64 {
	if k == nil {
		return 0
	}
	return k.size
}

// Base returns the address of the first byte in the owner's address space. It is for
// run-times that use addresses: the offset of address a is a - Base.
func (k *RemoteKey) Base() uint64 {
	if k == nil {
		return 0
	}
	return k.base
}

// Bytes returns the peer's memory for loads and stores if the transport maps it (self,
// shm). Otherwise it returns ErrUnsupported. The slice is valid until k or its endpoint
// is closed. When the owner closes the memory it stays mapped, but is no longer shared
// with any process.
func (k *RemoteKey) Bytes() ([]byte, error) {
	if k == nil {
		return nil, fmt.Errorf("bytes of remote memory: %w", ErrClosed)
	}
	k.t.lock()
	defer k.t.unlock()
	switch {
	case k.closed:
		return nil, fmt.Errorf("bytes of remote memory: %w", ErrClosed)
	case k.rma == nil || uint64(len(k.rma.attr.Bytes)) != k.size:
		return nil, fmt.Errorf("bytes of remote memory: not mapped in this process: %w", ErrUnsupported)
	}
	return k.rma.attr.Bytes, nil
}

// Close releases the key. Operations posted before still complete, and the transport's
// key is released after the last of them. A lane that only k references is closed with
// it. A Fence or Flush that has to cover operations of k must therefore come before
// Close. Close is idempotent.
func (k *RemoteKey) Close() error {
	if k == nil {
		return nil
	}
	k.t.lock()
	if k.closed {
		k.t.unlock()
		return nil
	}
	k.closed = true
	k.closeFast()
	w := k.t
	if slot := w.endpoint(k.e); slot != 0 {
		w.cold.disown(slot, k)
	}
	f := flush{w: w}
	for _, l := range k.lanes() {
		inUse := func(s request.Slot) bool { return transfersBy(&s, l.lane) && l.has(&s) }
		if slices.ContainsFunc(w.slab.Slots, inUse) {
			f.addLane(l.lane, ucs.NoResource)
		}
	}
	if f.parent == 0 {
		k.release()
		k.t.unlock()
		return nil
	}
	after := f.request()
	k.t.unlock()
	if !after.Notify(func(Completion) {
		k.t.lock()
		k.release()
		k.t.unlock()
	}, 0) {
		k.t.lock()
		k.release()
		k.t.unlock()
	}
	return nil
}

// release releases what k holds. No operation uses k any more.
func (k *RemoteKey) release() {
	for _, l := range k.lanes() {
		if !l.emulOnly {
			l.domain.ReleaseKey(l.rkey)
		}
		if !k.t.life.closing() { // otherwise the worker closes its lanes
			k.t.releaseLane(l.lane)
		}
	}
}

// usable returns OK, or the status with which an operation on k is refused.
func (k *RemoteKey) usable(need uct.MemFlags) ucs.Status {
	w := k.t
	slot := w.endpoint(k.e)
	switch {
	case slot == 0 || k.closed:
		return ucs.Closed
	case w.eps[slot].status != ucs.OK:
		return w.eps[slot].status
	case need == uct.MemRemoteAtomic && w.ctx.features&FeatureAtomics == 0:
		return w.ctx.features.has(FeatureAtomics)
	case need != uct.MemRemoteAtomic && w.ctx.features&FeatureRMA == 0:
		return w.ctx.features.has(FeatureRMA)
	case k.access&need == 0:
		return ucs.RemoteAccess
	}
	return ucs.OK
}
