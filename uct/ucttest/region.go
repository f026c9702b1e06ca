package ucttest

import (
	"reflect"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

// kind is a way to create memory that peers can access.
type kind string

const (
	allocated  kind = "allocated"
	registered kind = "registered"
	heap       kind = "" // no registration
)

// region is memory of owner's domain, with its key unpacked for one user.
type region struct {
	owner, user *node
	mem         uct.Mem
	bytes       []byte // as the owner maps it
	base        uint64 // the owner's address of bytes[0]
	packed      []byte
	key         uct.RKey
	attr        uct.KeyAttr
}

// kinds returns the kinds that the domain supports; it ends the case if there is none.
func (e *env) kinds(n *node) (ks []kind) {
	e.Helper()
	if n.dom.Attr().Allocate {
		ks = append(ks, allocated)
	}
	if n.dom.Attr().Register {
		ks = append(ks, registered)
	}
	if len(ks) == 0 {
		e.notApplicable("the domain has no memory for peers")
	}
	return ks
}

// memory creates a region of n bytes that is closed at the end of the case.
func (e *env) memory(owner *node, k kind, n int, f uct.MemFlags) uct.Mem {
	e.Helper()
	var mem uct.Mem
	var err error
	if k == allocated {
		mem, err = owner.dom.Allocate(n, f)
	} else {
		mem, err = owner.dom.Register(make([]byte, n), f)
	}
	require.NoError(e, err, "%s memory", k)
	require.Len(e, mem.Bytes(), n)
	e.Cleanup(func() { require.NoError(e, mem.Close(), "close memory") })
	return mem
}

// region creates memory of owner that user may access as f says.
func (e *env) region(owner, user *node, k kind, n int, f uct.MemFlags) *region {
	e.Helper()
	r := &region{owner: owner, user: user, mem: e.memory(owner, k, n, f)}
	r.bytes = r.mem.Bytes()
	r.base = addressOf(r.bytes)
	r.packed = r.mem.AppendKey(nil)
	r.key = e.unpack(user, r.packed)
	r.attr = user.dom.KeyAttr(r.key)
	return r
}

// unpack unpacks a key that is released at the end of the case.
func (e *env) unpack(user *node, packed []byte) uct.RKey {
	e.Helper()
	key, err := user.dom.UnpackKey(packed)
	require.NoError(e, err, "unpack key")
	e.Cleanup(func() { user.dom.ReleaseKey(key) })
	return key
}

// anyRegion returns a page of any kind, or nil if the domain has no remotely accessible memory.
func (e *env) anyRegion(owner, user *node) *region {
	e.Helper()
	if a := owner.dom.Attr(); !a.Allocate && !a.Register {
		return nil
	}
	return e.region(owner, user, e.kinds(owner)[0], 4096, uct.MemRemote)
}

// flush waits until what l posted has taken effect.
func (l *link) flush() {
	l.env.Helper()
	k := uct.FlushRemote
	if !l.from.attr.Ops.Has(uct.OpFlushRemote) {
		k = uct.FlushLocal
	}
	require.Equal(l.env, ok, l.complete(func(t uct.Token) uct.Status { return l.Flush(k, t) }), "flush")
}

// rmaForm is one form of put or get.
type rmaForm struct {
	name   string
	op     uct.Ops
	pieces int // of zcopy, at most MaxVec
}

var putForms = []rmaForm{
	{"short", uct.OpPutShort, 0},
	{"bcopy", uct.OpPutBcopy, 0},
	{"zcopy", uct.OpPutZcopy, 1},
	{"zcopy of pieces", uct.OpPutZcopy, 5},
}

var getForms = []rmaForm{
	{"short", uct.OpGetShort, 0},
	{"bcopy", uct.OpGetBcopy, 0},
	{"zcopy", uct.OpGetZcopy, 1},
	{"zcopy of pieces", uct.OpGetZcopy, 5},
}

// limits returns the iface's limits for the operation of f.
func (f *rmaForm) limits(a *uct.IfaceAttr) uct.Limit {
	if f.op&uct.OpsGet != 0 {
		return a.Get
	}
	return a.Put
}

// lengths returns the range of lengths.
func (f *rmaForm) lengths(a *uct.IfaceAttr) (low, high int) {
	lim := f.limits(a)
	switch f.op {
	case uct.OpPutShort, uct.OpGetShort:
		return 0, lim.Short
	case uct.OpPutBcopy, uct.OpGetBcopy:
		return 0, lim.Bcopy
	default:
		return lim.MinZcopy, lim.MaxZcopy
	}
}

func (f *rmaForm) fits(a *uct.IfaceAttr, n int) bool {
	low, high := f.lengths(a)
	return low <= n && n <= high
}

// run posts one operation of the form.
func (f *rmaForm) run(l *link, p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	n := min(f.limits(l.from.attr).MaxVec, f.pieces)
	switch f.op {
	case uct.OpPutShort:
		return l.PutShort(p, addr, k)
	case uct.OpPutBcopy:
		return l.PutBcopy(p, addr, k, t)
	case uct.OpPutZcopy:
		return l.PutZcopy(l.from.pieces(t, p, n), addr, k, t)
	case uct.OpGetShort:
		return l.GetShort(p, addr, k)
	case uct.OpGetBcopy:
		return l.GetBcopy(p, addr, k, t)
	default:
		return l.GetZcopy(l.from.pieces(t, p, n), addr, k, t)
	}
}

// transfer runs one operation to completion and returns its final status.
func (f *rmaForm) transfer(l *link, p []byte, addr uint64, k uct.RKey) uct.Status {
	l.env.Helper()
	return l.complete(func(t uct.Token) uct.Status { return f.run(l, p, addr, k, t) }, p)
}

// usable returns those of forms that the iface supports and the key allows.
func (r *region) usable(forms ...rmaForm) (use []rmaForm) {
	for _, f := range forms {
		if r.user.attr.Ops.Has(f.op) && r.attr.Ops.Has(f.op) {
			use = append(use, f)
		}
	}
	return use
}

// each calls do for each usable form and each length that fits.
func (r *region) each(forms []rmaForm, lengths []int, do func(f *rmaForm, n int)) {
	for _, f := range r.usable(forms...) {
		for _, n := range lengths {
			if f.fits(r.user.attr, n) {
				do(&f, n)
			}
		}
	}
}

// rmaForms are all forms.
var rmaForms = slices.Concat(putForms, getForms)

// snapshot is a copy of a region's memory that holds the expected content.
type snapshot []byte

func (r *region) snapshot() snapshot { return slices.Clone(r.bytes) }

// addressOf returns the address of b's first byte. The memory must be pinned or outside the Go
// heap.
func addressOf(b []byte) uint64 { return uint64(reflect.ValueOf(b).Pointer()) }
