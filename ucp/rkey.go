package ucp

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// RemoteKey reaches a peer's memory. It belongs to the Endpoint that unpacked it
// and is closed with it. Offsets count from the memory's first byte and are
// checked here, before anything is sent. The methods have the concurrency of the
// Worker.
//
// After Close everything answers ErrClosed. So does a nil RemoteKey, what stands
// beside an error of UnpackKey, except that put and get through it panic: a look
// at the pointer would cost each of them.
type RemoteKey struct {
	// What the fast paths read. The limits are 0 where every call must take the
	// slow half: with ThreadMulti, without the right, and after Close.
	put        uint64 // longest put by one short operation, not above size
	size, base uint64
	ep         uct.Endpoint
	rkey       uct.RKey
	put64      uint64       // number of offsets at which PutUint64 fits
	get, get64 uint64       // the same for gets
	amo        uct.Endpoint // noAtomics: slow
	amoKey     uct.RKey

	t      *Thread
	e      Endpoint
	access uct.MemFlags
	rma    *keyLane // put and get; nil: none
	atomic *keyLane // atomics; may be rma; nil: none
	noAMO  string   // why atomic is nil
	closed bool
}

// keyLane is a lane with the key by which its transport reaches the memory.
type keyLane struct {
	local  int // index in Worker.ports
	remote int // index in the peer's entries
	domain uct.Domain
	rkey   uct.RKey
	attr   uct.KeyAttr
	iface  *uct.IfaceAttr

	// By messages, with the key sw, go the atomics that attr lacks, or with swOnly
	// everything. Then rkey is the same, and there is no domain.
	sw     uct.RKey // 0: nothing does
	swOnly bool
	// instead: what sw would be if messages had to do everything; 0: they cannot.
	instead uct.RKey

	lane uint32 // index in Thread.lanes
	put  forms
	get  forms
}

// forms are the limits of short and bcopy operations in bytes, 0 where there is
// none. Longer transfers go in pieces, or with zcopy out of and into the program's
// own memory.
type forms struct {
	short, bcopy uint64
	zcopy        bool
}

// UnpackKey resolves a packed key: the lane towards its memory, the transport's
// key and the limits, here and once. It connects the endpoint, and may ask the
// owner's process for the memory's descriptor, bounded in time.
//
// Errors: ErrInvalid for damage, and for a key of another context than that of the
// endpoint's peer (any worker of the owner's context will do); ErrUnreachable, with every transport's reason;
// ErrRemoteAccess where the memory was closed meanwhile; the endpoint's own.
func (e Endpoint) UnpackKey(key Key) (*RemoteKey, error) {
	v, err := parseKey(key)
	if err != nil {
		return nil, fmt.Errorf("unpack key: %w", err)
	}
	if e.t == nil {
		return nil, fmt.Errorf("unpack key: %w", ErrClosed)
	}
	r := keyResolver{w: e.t.w, key: v, lanes: make(map[[2]int]*keyLane)}
	if err := r.plan(e); err != nil {
		return nil, fmt.Errorf("unpack key: %w", err)
	}
	k := &RemoteKey{t: e.t, e: e, size: v.len, base: v.base, access: v.access, amo: noAtomics{}}
	if v.len > 0 {
		r.resolve(k) // not under the worker's lock: it may wait for the owner
	}
	if err := r.attach(k); err != nil {
		r.release(nil)
		return nil, fmt.Errorf("unpack key to worker %s: %w", shortID(r.view.Worker), err)
	}
	return k, nil
}

// attach opens the lanes of k, gives k to its endpoint and opens the fast paths.
func (r *keyResolver) attach(k *RemoteKey) error {
	unreached := k.rma == nil && k.atomic == nil
	// Who asked the owner has heard that the memory is closed, or has heard nothing:
	// a way that asks nobody would only hide it.
	why := r.reason()
	told := errors.Is(why, ErrRemoteAccess) || errors.Is(why, ErrTimeout)
	if k.size > 0 && k.access&uct.MemRemote != 0 && (unreached || told) {
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
		if l.sw != 0 {
			w.introduce(lane)
			w.swLane(lane)
		}
	}
	w.own(slot, k)
	r.release(k)
	k.openFast()
	return nil
}

// lanes lists the lanes of k, each once.
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

// openFast sets what the fast paths read.
func (k *RemoteKey) openFast() {
	if k.t.locked || k.t.w.eps[k.t.w.endpoint(k.e)].status != ucs.OK {
		return
	}
	for _, l := range [...]*keyLane{k.rma, k.atomic} {
		if l != nil && !l.swOnly && k.t.lanes[l.lane].halted() != nil {
			return // until it goes on
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
	if l := k.atomic; l != nil && (l.sw == 0 || l.swOnly) { // else each has to look which way it goes
		k.amo, k.amoKey = k.endpoint(l), l.rkey
	}
	if !rowKeyResolve.Get(k.t.w.ctx.settings) {
		k.openLate()
	}
}

// endpoint is what carries out the operations of a fast path.
func (k *RemoteKey) endpoint(l *keyLane) uct.Endpoint {
	if l.swOnly {
		return k.t.lanes[l.lane].sw
	}
	return k.t.lanes[l.lane].ep
}

// openLate has the fast paths resolve the key at each operation.
func (k *RemoteKey) openLate() {
	if k.rma != nil && !k.rma.swOnly {
		k.ep = k.late(k.rma)
	}
	if k.atomic != nil && k.atomic.sw == 0 {
		k.amo = k.late(k.atomic)
	}
}

func (k *RemoteKey) closeFast() {
	if k.t.locked { // they were never open, and are read without the lock
		return
	}
	k.put, k.put64, k.get, k.get64 = 0, 0, 0, 0
	k.amo = noAtomics{}
}

// Len is the size of the memory in bytes.
func (k *RemoteKey) Len() uint64 {
	if k == nil {
		return 0
	}
	return k.size
}

// Base is the address of the first byte in the owner's address space, for
// run-times that think in addresses: the offset of address a is a - Base.
func (k *RemoteKey) Base() uint64 {
	if k == nil {
		return 0
	}
	return k.base
}

// Bytes is the peer's memory itself, for loads and stores, where the transport
// maps it (self, shm); elsewhere ErrUnsupported. Valid until Close of k or of
// its endpoint; the owner's Close leaves it mapped but no longer shared with
// anything.
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
		return nil, fmt.Errorf("bytes of remote memory: not mapped here: %w", ErrUnsupported)
	}
	return k.rma.attr.Bytes, nil
}

// Close gives the key back. Operations posted before still end; the transport's
// key goes after the last of them. A lane that only k held goes with it: where a
// Fence or Flush is to cover what k has put, it comes before Close. Idempotent.
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
	w := k.t.w
	if slot := w.endpoint(k.e); slot != 0 {
		w.disown(slot, k)
	}
	f := flush{w: w}
	for _, l := range k.lanes() {
		if w.keyInUse(l) {
			f.lane(l.lane)
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

// release gives back what k holds. No operation uses it any more.
func (k *RemoteKey) release() {
	for _, l := range k.lanes() {
		if !l.swOnly {
			l.domain.ReleaseKey(l.rkey)
		}
		if !k.t.w.closing { // else its lanes are closed already, or soon
			k.t.w.releaseLane(l.lane)
		}
	}
}

// keyInUse reports whether an operation on its way, or waiting, has l's key.
func (w *Worker) keyInUse(l *keyLane) bool {
	for i := range w.slab.slots {
		s := &w.slab.slots[i]
		if s.state == slotLive && s.op >= opPut && s.op <= opFetch && s.lane == l.lane &&
			(s.tag == uint64(l.rkey) || s.tag == uint64(l.sw)) {
			return true
		}
	}
	return false
}

// usable is OK, or what operations on k are refused with.
func (k *RemoteKey) usable(need uct.MemFlags) ucs.Status {
	w := k.t.w
	slot := w.endpoint(k.e)
	switch {
	case slot == 0 || k.closed:
		return ucs.Closed
	case w.eps[slot].status != ucs.OK:
		return w.eps[slot].status
	case k.access&need == 0:
		return ucs.RemoteAccess
	}
	return ucs.OK
}
