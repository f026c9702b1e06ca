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
	k, t := uct.FlushRemote, l.from.token()
	if !l.from.attr.Ops.Has(uct.OpFlushRemote) {
		k = uct.FlushLocal
	}
	st := l.post(func() uct.Status { return l.from.sent(t, l.Flush(k, t)) })
	require.Equal(l.env, ok, l.end(t, st), "flush")
}

// rmaForm is one form of put or get.
type rmaForm struct {
	name  string
	op    uct.Ops
	limit func(*uct.IfaceAttr) (minimum, maximum int)
	run   func(l *link, p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status
}

func (f *rmaForm) fits(a *uct.IfaceAttr, n int) bool {
	low, high := f.limit(a)
	return low <= n && n <= high
}

// transfer runs one operation to completion and returns its final status.
func (f *rmaForm) transfer(l *link, p []byte, addr uint64, k uct.RKey) uct.Status {
	l.env.Helper()
	t := l.from.token()
	st := l.post(func() uct.Status { return l.from.sent(t, f.run(l, p, addr, k, t), p) })
	return l.end(t, st)
}

var putForms = []rmaForm{
	{
		"short", uct.OpPutShort,
		func(a *uct.IfaceAttr) (int, int) { return 0, a.Put.Short },
		func(l *link, p []byte, addr uint64, k uct.RKey, _ uct.Token) uct.Status {
			return l.PutShort(p, addr, k)
		},
	},
	{
		"bcopy", uct.OpPutBcopy,
		func(a *uct.IfaceAttr) (int, int) { return 0, a.Put.Bcopy },
		func(l *link, p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
			return l.PutBcopy(p, addr, k, t)
		},
	},
	{
		"zcopy", uct.OpPutZcopy,
		func(a *uct.IfaceAttr) (int, int) { return a.Put.MinZcopy, a.Put.MaxZcopy },
		func(l *link, p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
			return l.PutZcopy(l.from.pieces(t, p, 1), addr, k, t)
		},
	},
	{
		"zcopy of pieces", uct.OpPutZcopy,
		func(a *uct.IfaceAttr) (int, int) { return a.Put.MinZcopy, a.Put.MaxZcopy },
		func(l *link, p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
			return l.PutZcopy(l.from.pieces(t, p, min(l.from.attr.Put.MaxVec, 5)), addr, k, t)
		},
	},
}

var getForms = []rmaForm{
	{
		"short", uct.OpGetShort,
		func(a *uct.IfaceAttr) (int, int) { return 0, a.Get.Short },
		func(l *link, p []byte, addr uint64, k uct.RKey, _ uct.Token) uct.Status {
			return l.GetShort(p, addr, k)
		},
	},
	{
		"bcopy", uct.OpGetBcopy,
		func(a *uct.IfaceAttr) (int, int) { return 0, a.Get.Bcopy },
		func(l *link, p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
			return l.GetBcopy(p, addr, k, t)
		},
	},
	{
		"zcopy", uct.OpGetZcopy,
		func(a *uct.IfaceAttr) (int, int) { return a.Get.MinZcopy, a.Get.MaxZcopy },
		func(l *link, p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
			return l.GetZcopy(l.from.pieces(t, p, 1), addr, k, t)
		},
	},
	{
		"zcopy of pieces", uct.OpGetZcopy,
		func(a *uct.IfaceAttr) (int, int) { return a.Get.MinZcopy, a.Get.MaxZcopy },
		func(l *link, p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
			return l.GetZcopy(l.from.pieces(t, p, min(l.from.attr.Get.MaxVec, 5)), addr, k, t)
		},
	},
}

// usable returns those of fs that the iface supports and the key allows.
func (r *region) usable(fs []rmaForm) (use []rmaForm) {
	for _, f := range fs {
		if r.user.attr.Ops.Has(f.op) && r.attr.Ops.Has(f.op) {
			use = append(use, f)
		}
	}
	return use
}

// snapshot is a copy of a region's memory that holds the expected content.
type snapshot []byte

func (r *region) snapshot() snapshot { return slices.Clone(r.bytes) }

// addressOf returns the address of b's first byte. The memory must be pinned or outside the Go
// heap.
func addressOf(b []byte) uint64 { return uint64(reflect.ValueOf(b).Pointer()) }
