package soft

import (
	"fmt"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// mw is a memory window. Its key has an index in mrTable for as long as it is allocated.
// While it is bound, the table holds a binding there, so that the lookup of keys is the same for
// regions and windows.
//
// A bind is posted by BindWindow, which makes the binding, and executed in its turn by the
// requester (mrTable.bind). Close of a region fails while windows are bound to it. So the memory
// of a binding is registered, and MR.Close waits for those who looked it up by a window.
//
// Source: IBTA vol. 1, 10.6.7; Linux rxe_mw.c.
type mw struct {
	d      *device
	pd     *pd // whose protection applies
	domain *pd // the domain that it was allocated in
	typ    verbs.MWType

	mu     sync.Mutex // serialises BindWindow and Close; before the posters' lock
	key    uint32     // of the last bind that was posted; guarded by mu
	closed bool       // guarded by mu

	// Guarded by mrTable.mu.
	current uint32 // key of the last bind that was executed
	bound   *mr    // the binding; nil: none
	freed   bool   // closed: nothing binds it any more
}

// binding is what a window opens. It is part of the mr that mrTable holds for the window,
// which has the key, the memory and the rights of the window, and no domain: so it is no memory for
// local use.
type binding struct {
	window    *mw
	region    *mr    // nil: a bind of no bytes
	regionKey uint32 // of region when the bind was posted
	qp        *qp    // that binds it: a window of type 2 is for its peer alone
}

func (w *mw) MadeBy() *device { return w.d }
func (m *mr) MadeBy() *device { return m.d }

// AllocMW allocates a memory window.
func (p *pd) AllocMW(t verbs.MWType) (verbs.MW, error) {
	d := p.d
	if t != verbs.MWType1 && t != verbs.MWType2 {
		return nil, fmt.Errorf("allocate memory window of type %d, want 1 or 2: %w", t, ucs.ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.Admit(objects.MW, d.attr.MaxMW); err != nil {
		return nil, fmt.Errorf("allocate memory window: %w", err)
	}
	w := &mw{d: d, pd: p.protection, domain: p, typ: t}
	d.mrs.mu.Lock()
	defer d.mrs.mu.Unlock()
	w.key = d.mrs.alloc()
	w.current = w.key
	return w, nil
}

// RKey returns the key of the last bind.
func (w *mw) RKey() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.key
}

// Close frees the window and makes its key invalid.
func (w *mw) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	d := w.d
	d.mrs.freeWindow(w)
	d.mu.Lock()
	defer d.mu.Unlock()
	w.domain.Release(objects.MW)
	return nil
}

// BindWindow posts a request that binds win to b. It checks what does not change until the
// request is executed; the rest ends the request with WCMWBindErr: a region that was closed, or
// a window of type 2 that is bound.
func (q *qp) BindWindow(id uint64, flags verbs.SendFlags, win verbs.MW, b verbs.MWBind) error {
	fail := func(err error) error { return fmt.Errorf("bind memory window: %w", err) }
	w, err := objects.Own[*mw](q.d, "memory window", win)
	if err != nil {
		return fail(err)
	}
	e := &mr{d: q.d, access: b.Access, addr: b.Addr, bind: &binding{window: w, qp: q}}
	switch {
	case b.Access&^(verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic) != 0:
		return fail(fmt.Errorf("access %#x, a window has RemoteWrite, RemoteRead and RemoteAtomic: %w", uint32(b.Access), ucs.ErrInvalid))
	case w.pd != q.pd.protection:
		return fail(fmt.Errorf("the window is of another protection domain: %w", ucs.ErrInvalid))
	case b.Len == 0 && w.typ == verbs.MWType2:
		return fail(fmt.Errorf("no bytes: OpLocalInv makes the key of a window of type 2 invalid: %w", ucs.ErrInvalid))
	case b.Len != 0:
		if err := e.covers(&b); err != nil {
			return fail(err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fail(fmt.Errorf("the window is closed: %w", ucs.ErrClosed))
	}
	e.key = nextKey(w.key)
	if st := q.postBind(id, flags, e); st != ucs.OK {
		return fail(fmt.Errorf("post to a queue pair in state %v: %w", q.loadState(), st.Err()))
	}
	w.key = e.key
	return nil
}

// covers makes e the part of a region that b names, or returns why b cannot be bound.
func (e *mr) covers(b *verbs.MWBind) error {
	m, err := objects.Own[*mr](e.d, "memory region", b.MR)
	if err != nil {
		return err
	}
	off := b.Addr - m.addr
	switch {
	case m.pd != e.bind.window.pd:
		return fmt.Errorf("the region is of another protection domain, or closed: %w", ucs.ErrInvalid)
	case m.access&verbs.BindMW == 0:
		return fmt.Errorf("the region was registered without BindMW: %w", ucs.ErrInvalid)
	case b.Access&(verbs.RemoteWrite|verbs.RemoteAtomic) != 0 && m.access&verbs.LocalWrite == 0:
		return fmt.Errorf("RemoteWrite and RemoteAtomic require LocalWrite of the region: %w", ucs.ErrInvalid)
	case off > uint64(len(m.buf)) || b.Len > uint64(len(m.buf))-off:
		return fmt.Errorf("%d bytes at %#x, the region has %d at %#x: %w", b.Len, b.Addr, len(m.buf), m.addr, ucs.ErrInvalid)
	}
	e.buf, e.bind.region, e.bind.regionKey = m.buf[off:off+b.Len:off+b.Len], m, m.key
	return nil
}

// postBind posts the bind of e.
func (q *qp) postBind(id uint64, flags verbs.SendFlags, e *mr) ucs.Status {
	if q.loadState() < verbs.StateRTS {
		return ucs.InvalidParam
	}
	owned := q.lockPosts()
	q.sq.bind = e
	_, st := q.postSlow([]verbs.SendWR{{ID: id, Op: verbs.OpBindMW, Flags: flags &^ verbs.SendInline}}, owned)
	if st != ucs.OK { // the bind was not taken out
		owned = q.lockPosts()
		q.sq.bind = nil
		q.unlockPosts()
		if owned {
			q.releaseOrTransmit()
		}
	}
	return st
}

// nextKey returns the key of a window's next bind: another version of the same index. It is never
// 0.
func nextKey(key uint32) uint32 {
	next := key&^0xff | (key+1)&0xff
	if next == 0 {
		next++
	}
	return next
}

// bind executes the bind of e. It returns false if the window or its region do not permit it any
// more.
func (t *mrTable) bind(e *mr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := e.bind
	w, m := b.window, b.region
	switch {
	case w.freed || nextKey(w.current) != e.key: // another queue pair has bound it meanwhile
		return false
	case w.typ == verbs.MWType2 && w.bound != nil:
		return false
	case m != nil && (m.key != b.regionKey || m.invalid.Load()):
		return false
	}
	t.unbind(w)
	w.current = e.key
	if m != nil {
		m.windows++
		w.bound = e
		t.set(t.index(e.key), e)
	}
	return true
}

// unbind makes the window's key invalid. The caller holds mu.
func (t *mrTable) unbind(w *mw) {
	if e := w.bound; e != nil {
		e.invalid.Store(true)
		e.bind.region.windows--
		w.bound = nil
		t.set(t.index(e.key), nil)
	}
}

// freeWindow frees the index of a closed window. The next object with this index continues with
// the versions of the window's keys.
func (t *mrTable) freeWindow(w *mw) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.freed = true
	t.unbind(w)
	t.versions[t.index(w.key)] = uint8(w.key ^ t.mask)
	t.release(w.key)
}

// throughWindow returns the memory that a request of the peer names, if the key is that of a
// window which is open for q's peer.
//
//go:noinline
func (q *qp) throughWindow(key uint32, addr uint64, n int, need verbs.Access) ([]byte, bool) {
	m := q.d.mrs.find(key)
	if m == nil || !m.opensFor(q) || m.access&need != need {
		return nil, false
	}
	b := m.at(addr, n)
	return b, b != nil
}

// opensFor reports whether m is the binding of a window that q's peer may use.
func (m *mr) opensFor(q *qp) bool {
	b := m.bind
	return b != nil && b.window.pd == q.pd.protection && (b.window.typ == verbs.MWType1 || b.qp == q)
}

// remote returns the memory of a region or of a window that a request of the peer names.
func (q *qp) remote(key uint32, addr uint64, n int, need verbs.Access) ([]byte, bool) {
	if b, ok := q.d.remote(q.pd, key, addr, n, need); ok {
		return b, true
	}
	return q.throughWindow(key, addr, n, need)
}

// invalidate invalidates a key for a work request or a request of the peer: that of a window of
// type 2 that q has bound, or of a revocable region.
func (q *qp) invalidate(key uint32) bool {
	t := &q.d.mrs
	if m := t.find(key); m == nil || m.bind == nil {
		return q.d.invalidate(q.pd, key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.find(key)
	if m == nil || m.bind == nil || m.bind.window.typ != verbs.MWType2 || !m.opensFor(q) {
		return false
	}
	t.unbind(m.bind.window)
	return true
}

// executeLocal executes a request that takes no packet. It returns false if it fails.
func (q *qp) executeLocal(w *wqe) bool {
	if w.op == verbs.OpLocalInv {
		return q.invalidate(w.imm)
	}
	e := w.bind
	w.bind = nil
	return e != nil && q.d.mrs.bind(e)
}
