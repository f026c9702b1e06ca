package ucttest

import (
	"errors"
	"math"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

var rmaCases = []testCase{
	{"range", rmaRange},
	{"flags", rmaFlags},
	{"revoked", rmaRevoked},
	{"closed", rmaClosed},
	{"same-domain", rmaSameDomain},
	{"mapped-bytes", rmaMappedBytes},
	{"too-long", rmaTooLong},
	{"unsupported", rmaUnsupported},
}

// refusals are the statuses that a forbidden access may return.
var refusals = []uct.Status{ucs.InvalidParam, ucs.RemoteAccess}

// outside returns accesses of a region of size bytes that begin or end outside.
func outside(base uint64, size int) (spans [][2]uint64) {
	s := uint64(size)
	return [][2]uint64{
		{base - 1, 1},
		{base - 8, 8},
		{base - 1, s},
		{base - 1, s + 2},
		{base + s, 1},
		{base + s - 1, 2},
		{base + s - 7, 8},
		{base + 1, s},
		{base, s + 1},
		{0, 8},
		{math.MaxUint64, 8},
		{math.MaxUint64 - 7, 8},
		{math.MaxUint64 - 3, 16},
		{base + 1<<63, 8},
		{base + math.MaxUint32, 8},
	}
}

// rmaRange accesses memory outside the region with every form: each is refused, and no byte of
// either side changes.
func rmaRange(e *env) {
	const size = 4096
	e.eachRegion(uct.OpsPut|uct.OpsGet, "put or get", size, func(l *link, r *region) {
		want := r.snapshot()
		for _, span := range outside(r.base, size) {
			l.refuses(r, span[0], int(span[1]))
		}
		l.flush()
		require.Equal(e, []byte(want), r.bytes, "a refused access wrote")
	})
}

// refuses tries every form on n bytes at addr.
func (l *link) refuses(r *region, addr uint64, n int) {
	e := l.env
	e.Helper()
	r.each(rmaForms, []int{n}, func(f *rmaForm, n int) {
		p := pattern(n, 99)
		st := f.transfer(l, p, addr, r.key)
		require.Contains(e, e.denials(refusals...), st, "%v %s of %d bytes at %#x of [%#x, +%d)", f.op, f.name, n, addr, r.base, len(r.bytes))
		require.True(e, holds(p, 99), "a refused %s changed the local buffer", f.name)
	})
	if n != 8 {
		return
	}
	for _, op := range l.words(r, addr) {
		require.Contains(e, e.denials(refusals...), l.complete(op.call), "%s at %#x of [%#x, +%d)", op.name, addr, r.base, len(r.bytes))
	}
}

// denials returns the statuses that a denied access may return: the usual ones, and that of a lost
// refusal.
func (e *env) denials(usual ...uct.Status) []uct.Status {
	if e.factory.Late {
		usual = append(slices.Clone(usual), ucs.PeerFailed)
	}
	return usual
}

// denied requires that err is a refusal by the peer. Where the refusal may be lost, the peer may
// count as failed instead.
func (e *env) denied(err error, msg ...any) {
	e.Helper()
	if !e.factory.Late || !errors.Is(err, ucs.ErrPeerFailed) {
		require.ErrorIs(e, err, ucs.ErrRemoteAccess, msg...)
	}
}

// requireNoAccess tries every form on a revoked or closed region. If that fails the endpoint, each uses a
// new one.
func (l *link) requireNoAccess(r *region, addr uint64, n int) {
	e, a := l.env, l.from
	e.Helper()
	if !a.attr.AccessErrorFatal {
		l.refuses(r, addr, n)
		return
	}
	a.mayFail = true
	r.each(rmaForms, []int{n}, func(f *rmaForm, n int) {
		p, one := pattern(n, 99), e.dial(a, l.to, l.addr)
		st := f.transfer(one, p, addr, r.key)
		require.Contains(e, e.denials(ok, ucs.RemoteAccess), st, "%v %s of %d bytes", f.op, f.name, n)
		e.denied(one.failed().Err, "%v %s of %d bytes", f.op, f.name, n)
		require.True(e, holds(p, 99), "a refused %s changed the local buffer", f.name)
		one.Close()
	})
	if n != 8 {
		return
	}
	for i := range l.words(r, addr) {
		one := e.dial(a, l.to, l.addr)
		op := one.words(r, addr)[i]
		require.Contains(e, e.denials(ok, ucs.RemoteAccess), one.complete(op.call), op.name)
		e.denied(one.failed().Err, op.name)
		one.Close()
	}
}

// requireKeyRefused requires that the key of a revoked or closed region is refused, if unpacking asks the
// owner.
func (r *region) requireKeyRefused() {
	e := r.user.env
	e.Helper()
	k, err := r.user.dom.UnpackKey(r.packed)
	if err == nil {
		require.True(e, r.user.dom.Attr().LazyKeyCheck, "the key of a region that was taken back was unpacked")
		r.user.dom.ReleaseKey(k)
	}
}

// rmaFlags grants each right alone: KeyAttr shows it, and the others are refused.
func rmaFlags(e *env) {
	a, b := e.pair()
	if a.attr.Ops&(uct.OpsPut|uct.OpsGet) == 0 {
		e.notApplicable("carries neither put nor get")
	}
	l := e.connect(a, b)
	rights := []struct {
		flag uct.MemFlags
		ops  uct.Ops
	}{{uct.MemRemotePut, uct.OpsPut}, {uct.MemRemoteGet, uct.OpsGet}, {uct.MemRemoteAtomic, uct.OpAtomics}, {0, 0}}
	for _, k := range e.kinds(b) {
		for _, right := range rights {
			r := e.region(b, a, k, 4096, right.flag)
			assert.Zero(e, r.attr.Ops&(uct.OpsPut|uct.OpsGet|uct.OpAtomics)&^right.ops, "KeyAttr shows more than the flags")
			fill(r.bytes, 1)
			r.attr.Ops = (uct.OpsPut | uct.OpsGet | uct.OpAtomics) &^ right.ops // try what is not allowed
			l.refuses(r, r.base, 8)
			l.flush()
			require.True(e, holds(r.bytes, 1), "a refused access wrote")
		}
	}
}

// rmaRevoked revokes a region: accesses that begin later are refused, and so are keys unpacked
// later.
func rmaRevoked(e *env) {
	e.eachRegion(uct.OpsPut|uct.OpsGet, "put or get", 4096, func(l *link, r *region) {
		require.Equal(e, ok, r.mem.Revoke())
		require.Equal(e, ok, r.mem.Revoke(), "revoked twice")
		l.requireNoAccess(r, r.base, 8)
		l.requireNoAccess(r, r.base, 1000)
		l.flush()
		require.True(e, holds(r.bytes, 1), "an access after Revoke wrote")
		r.requireKeyRefused()
	})
}

// rmaClosed: the key of a closed region permits no access, even if another region takes its place.
func rmaClosed(e *env) {
	e.eachRegion(uct.OpsPut|uct.OpsGet, "put or get", 4096, func(l *link, r *region) {
		require.NoError(e, r.mem.Close())
		require.NoError(e, r.mem.Close(), "closed twice")
		for range 8 {
			heir := e.region(r.owner, r.user, e.kinds(r.owner)[0], 4096, uct.MemRemote)
			fill(heir.bytes, 3)
			l.requireNoAccess(r, r.base, 8)
			if heir.base-r.base < uint64(len(r.bytes)) {
				l.requireNoAccess(r, heir.base, 8)
			} else {
				l.refuses(r, heir.base, 8)
			}
			l.flush()
			require.True(e, holds(heir.bytes, 3), "the key of a closed region wrote")
		}
		r.requireKeyRefused()
	})
}

// rmaSameDomain: initiator and owner share a domain.
func rmaSameDomain(e *env) {
	a := e.node()
	if a.attr.Ops&(uct.OpsPut|uct.OpsGet) == 0 {
		e.notApplicable("carries neither put nor get")
	}
	b := e.nodeOn(a.dom)
	if reachable, _ := a.iface.Reachable(b.address()); !reachable {
		b = a
	}
	l := e.connect(a, b)
	for _, k := range e.kinds(b) {
		r := e.region(b, a, k, 4096, uct.MemRemote)
		p := pattern(1000, 5)
		r.each(putForms, []int{len(p)}, func(f *rmaForm, _ int) {
			clear(r.bytes)
			require.Equal(e, ok, f.transfer(l, p, r.base+1, r.key))
			l.flush()
			require.Equal(e, p, r.bytes[1:1001])
		})
	}
}

// rmaMappedBytes: KeyAttr.Bytes is the region.
func rmaMappedBytes(e *env) {
	a, b := e.pair()
	seen := false
	for _, k := range e.kinds(b) {
		r := e.region(b, a, k, 4096, uct.MemRemote)
		if r.attr.Bytes == nil {
			continue
		}
		seen = true
		require.Len(e, r.attr.Bytes, len(r.bytes))
		fill(r.bytes, 1)
		require.True(e, holds(r.attr.Bytes, 1))
		fill(r.attr.Bytes, 2)
		require.True(e, holds(r.bytes, 2))
	}
	if !seen {
		e.notApplicable("memory of peers is not mapped")
	}
}

// rmaTooLong exceeds each limit by one.
func rmaTooLong(e *env) {
	tried := false
	e.eachRegion(uct.OpsPut|uct.OpsGet, "put or get", 4096, func(l *link, r *region) {
		for _, f := range r.usable(rmaForms...) {
			if _, high := f.lengths(r.user.attr); high < 1<<26 {
				tried = true
				assert.Equal(e, ucs.TooLong, f.transfer(l, make([]byte, high+1), r.base, r.key), f.name)
			}
		}
	})
	if !tried {
		e.notApplicable("put and get have no limits")
	}
}

// rmaUnsupported: operations that Attr does not list return Unsupported.
func rmaUnsupported(e *env) {
	a, b := e.pair()
	const all = uct.OpsPut | uct.OpsGet | uct.OpAtomics
	if a.attr.Ops.Has(all) {
		e.notApplicable("carries every one-sided operation")
	}
	l := e.connect(a, b)
	for _, op := range l.allOperations(&region{}, 0, 0) {
		if op.need&all != 0 && !a.attr.Ops.Has(op.need) {
			assert.Equal(e, ucs.Unsupported, op.run(), op.name)
		}
	}
}
