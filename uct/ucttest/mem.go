package ucttest

import (
	"math"
	"math/rand/v2"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

var memCases = []testCase{
	{"allocate", memAllocate},
	{"register", memRegister},
	{"bad-arguments", memBadArguments},
	{"domain-close", memDomainClose},
}

// memAllocate: the memory is zeroed, has the requested length and is writable; Close is
// idempotent.
func memAllocate(e *env) {
	n := e.node()
	if !n.dom.Attr().Allocate {
		e.notApplicable("the domain does not allocate")
	}
	for _, size := range []int{1, 7, 64, 4095, 4096, 4097, 1 << 20} {
		m, err := n.dom.Allocate(size, uct.MemRemote)
		require.NoError(e, err)
		require.Len(e, m.Bytes(), size)
		require.Equal(e, make([]byte, size), m.Bytes(), "not zeroed")
		clobber(m.Bytes())
		require.NoError(e, m.Close())
		require.NoError(e, m.Close(), "closed twice")
	}
}

// memRegister: the region is the program's buffer itself.
func memRegister(e *env) {
	n := e.node()
	if !n.dom.Attr().Register {
		e.notApplicable("the domain does not register")
	}
	whole := make([]byte, 10_000)
	for _, span := range [][2]int{{0, 10_000}, {1, 9_999}, {4096, 4097}, {17, 5000}} {
		buf := whole[span[0]:span[1]]
		m, err := n.dom.Register(buf, uct.MemRemote)
		require.NoError(e, err)
		require.Len(e, m.Bytes(), len(buf))
		fill(buf, 1)
		require.True(e, holds(m.Bytes(), 1))
		require.NoError(e, m.Close())
		require.NoError(e, m.Close(), "closed twice")
		require.True(e, holds(buf, 1), "the buffer stays the program's")
	}
}

func memBadArguments(e *env) {
	n := e.node()
	e.kinds(n)
	for _, size := range []int{0, -1, math.MinInt, math.MaxInt} {
		_, err := n.dom.Allocate(size, uct.MemRemote)
		assert.Error(e, err, "allocate %d", size)
	}
	for _, buf := range [][]byte{nil, {}} {
		_, err := n.dom.Register(buf, uct.MemRemote)
		assert.Error(e, err, "register nothing")
	}
}

// memDomainClose: a domain cannot be closed while ifaces or regions are open.
func memDomainClose(e *env) {
	n := e.node()
	m := e.memory(n, e.kinds(n)[0], 64, uct.MemRemote)
	require.Error(e, n.dom.Close(), "with an iface and a region")
	require.NoError(e, n.close())
	require.Error(e, n.dom.Close(), "with a region")
	require.Len(e, m.Bytes(), 64)
	require.NoError(e, m.Close())
	require.NoError(e, n.dom.Close())
}

var keyCases = []testCase{
	{"length", keyLength},
	{"damaged", keyDamaged},
	{"twice", keyTwice},
	{"released", keyReleased},
}

// eachKey runs f on the packed key of each kind of memory.
func (e *env) eachKey(f func(owner, user *node, packed []byte)) {
	e.Helper()
	a, b := e.pair()
	for _, k := range e.kinds(b) {
		f(b, a, e.memory(b, k, 4096, uct.MemRemote).AppendKey(nil))
	}
}

func keyLength(e *env) {
	a, b := e.pair()
	for _, k := range e.kinds(b) {
		m := e.memory(b, k, 4096, uct.MemRemote)
		packed := m.AppendKey([]byte("in front"))
		require.Equal(e, "in front", string(packed[:8]), "AppendKey appends")
		require.LessOrEqual(e, len(packed)-8, b.dom.Attr().KeyLen)
		require.Equal(e, packed[8:], m.AppendKey(nil), "the key changed")
		e.unpack(a, packed[8:])
	}
}

// keyDamaged truncates, extends and flips bits: each is an error, never a panic or an access.
func keyDamaged(e *env) {
	e.eachKey(func(_, user *node, packed []byte) {
		refuse := func(b []byte, how string, at int) {
			_, err := user.dom.UnpackKey(b)
			require.Error(e, err, "%s at %d of %d", how, at, len(packed))
		}
		for n := range packed {
			refuse(packed[:n], "cut", n)
		}
		refuse(nil, "empty", 0)
		refuse(append(append([]byte(nil), packed...), 0), "extended", len(packed))
		for bit := range len(packed) * 8 {
			b := append([]byte(nil), packed...)
			b[bit/8] ^= 1 << (bit % 8)
			refuse(b, "bit flipped", bit)
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 1000 {
			b := append([]byte(nil), packed...)
			for i := random.IntN(len(b)); i < len(b); i++ {
				b[i] ^= byte(1 + random.IntN(255))
			}
			refuse(b, "garbage", 0)
		}
	})
}

// keyTwice unpacks a key several times; the results are independent.
func keyTwice(e *env) {
	if e.node().attr.Ops&(uct.OpsPut|uct.OpsGet) == 0 {
		e.notApplicable("carries neither put nor get")
	}
	e.eachKey(func(_, user *node, packed []byte) {
		first := e.unpack(user, packed)
		second, err := user.dom.UnpackKey(packed)
		require.NoError(e, err)
		user.dom.ReleaseKey(second)
		require.NotZero(e, user.dom.KeyAttr(first).Ops, "released with another use")
	})
}

// keyReleased: a key may outlive its owner's region. Releasing it is harmless, and many keys leak
// nothing.
func keyReleased(e *env) {
	a, b := e.pair()
	for _, k := range e.kinds(b) {
		for range 200 {
			m := e.memory(b, k, 4096, uct.MemRemote)
			key, err := a.dom.UnpackKey(m.AppendKey(nil))
			require.NoError(e, err)
			require.NoError(e, m.Close())
			a.dom.ReleaseKey(key)
		}
	}
}
