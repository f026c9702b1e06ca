package ucptest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/wireup"
)

var keyCases = []Case{
	{"58 pack, unpack, use, close", keyLife},
	{"58 closed right after the flush", keyCloseAfterFlush},
	{"58 many keys of one endpoint", keyMany},
	{"58 memory of another context", keyOtherContext},
	{"58 a key of another context than the endpoint's worker", keyWrongContext},
	{"58 a key at any worker of its context", keyAnyWorker},
	{"59 the memory itself", keyBytes},
	{"60 equal keys and different ones", keyCompare},
	{"61 sizes", memSizes},
	{"62 query", memQuery},
	{"63 use after the owner's close", keyAfterClose},
	{"63 memory closed with its context", memContextClose},
	{"damaged keys", keyDamaged},
	{"keys end with their endpoint", keyEndpointClose},
}

func keyLife(t *testing.T, p *Pair) {
	for name, m := range p.memories(4096) {
		for range 3 {
			k := p.unpack(m)
			assert.Equal(t, m.Query().Base, k.Base(), name)
			assert.Equal(t, uint64(4096), k.Len(), name)
			want, got := pattern(100, 3), make([]byte, 100)
			require.NoError(t, p.Wait(k.Put(want, 7)), name)
			require.NoError(t, p.Wait(p.AB.Flush()), name)
			require.NoError(t, p.Wait(k.Get(got, 7)), name)
			require.Equal(t, want, got, name)
			require.NoError(t, k.Close())
			require.NoError(t, k.Close(), "twice")
			require.ErrorIs(t, p.Wait(k.Put(want, 7)), ucp.ErrClosed, name)
		}
	}
}

func keyCloseAfterFlush(t *testing.T, p *Pair) {
	m, err := p.Context.Allocate(1<<20, ucp.MemConfig{})
	require.NoError(t, err)
	for i := range byte(50) {
		k := p.unpack(m)
		want := pattern(1<<20, i)
		r := k.Put(want, 0)
		f := p.AB.Flush()
		require.NoError(t, k.Close(), "takes effect after the last operation")
		require.NoError(t, p.Wait(r))
		require.NoError(t, p.Wait(f))
		require.Equal(t, want, m.Bytes())
	}
}

func keyMany(t *testing.T, p *Pair) {
	const n = 300
	m, err := p.Context.Allocate(8*n, ucp.MemConfig{})
	require.NoError(t, err)
	keys := make([]*ucp.RemoteKey, n)
	for i := range keys {
		keys[i] = p.unpack(m)
	}
	for i, k := range keys {
		require.NoError(t, p.Wait(k.PutUint64(uint64(i)+1, uint64(8*i))))
		if i%2 == 0 {
			require.NoError(t, k.Close())
		}
	}
	require.NoError(t, p.Wait(p.AB.Flush()))
	for i, k := range keys {
		require.Equal(t, uint64(i)+1, m.Load64(8*i))
		_, err := p.value(k.GetUint64(uint64(8 * i)))
		require.Equal(t, i%2 == 1, err == nil)
	}
}

// keyOtherContext: the owner is another context, as in another process.
func keyOtherContext(t *testing.T, p *Pair) {
	if p.Alone() {
		return // there is no other peer
	}
	c, err := p.Factory.open(ucp.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w := p.workerOf(c, ucp.WorkerConfig{Mode: p.mode})
	e := p.Connect(p.A, w)
	for _, alloc := range []bool{true, false} {
		m, err := c.Register(make([]byte, 5000), ucp.MemConfig{})
		require.NoError(t, err)
		if alloc {
			m, err = c.Allocate(5000, ucp.MemConfig{})
			require.NoError(t, err)
		}
		k, err := e.UnpackKey(m.Key())
		require.NoError(t, err)
		want, got := pattern(5000, 1), make([]byte, 5000)
		require.NoError(t, p.Wait(k.Put(want, 0)))
		require.NoError(t, p.Wait(e.Flush()))
		require.Equal(t, want, m.Bytes())
		require.NoError(t, p.Wait(k.Get(got, 0)))
		require.Equal(t, want, got)
	}
	require.NoError(t, e.Close())
}

// keyWrongContext: a key is refused at an endpoint to a worker of another context.
// Nothing would reach the memory that it names; something might reach other memory.
func keyWrongContext(t *testing.T, p *Pair) {
	c, err := p.Factory.open(ucp.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	theirs, err := wireup.Parse(p.workerOf(c, ucp.WorkerConfig{Mode: p.mode}).Address())
	require.NoError(t, err)
	asked, err := wireup.Parse(p.B.Address())
	require.NoError(t, err)
	for _, n := range []int{0, 4096} {
		m, err := c.Allocate(n, ucp.MemConfig{})
		require.NoError(t, err)
		_, err = p.AB.UnpackKey(m.Key())
		require.ErrorIs(t, err, ucp.ErrInvalid, "%d bytes", n)
		for _, v := range []wireup.View{theirs, asked} {
			assert.ErrorContains(t, err, fmt.Sprintf("context %d of process %x", v.Context, v.Process[:4]))
		}
	}
	_, k := p.lend(64) // the endpoint goes on
	require.NoError(t, p.Wait(k.PutUint64(1, 0)))
	require.NoError(t, p.Wait(p.AB.Flush()))
}

// keyAnyWorker: the owner's workers all reach the memory of their context.
func keyAnyWorker(t *testing.T, p *Pair) {
	if p.Alone() {
		return // no other worker is reached
	}
	m, err := p.Context.Allocate(8, ucp.MemConfig{})
	require.NoError(t, err)
	for i := range uint64(3) {
		e := p.Connect(p.A, p.NewWorker())
		k, err := e.UnpackKey(m.Key())
		require.NoError(t, err)
		require.NoError(t, p.Wait(k.PutUint64(i+1, 0)))
		require.NoError(t, p.Wait(e.Flush()))
		require.Equal(t, i+1, m.Load64(0))
		require.NoError(t, k.Close())
		require.NoError(t, p.Close(p.A, e))
	}
}

func keyBytes(t *testing.T, p *Pair) {
	m, k := p.lend(4096)
	b, err := k.Bytes()
	if err != nil { // a transport that does not map says so
		require.ErrorIs(t, err, ucp.ErrUnsupported)
		return
	}
	require.Len(t, b, 4096)
	copy(b[100:], "stored directly")
	assert.Equal(t, "stored directly", string(m.Bytes()[100:115]))
	copy(m.Bytes()[200:], "and back")
	assert.Equal(t, "and back", string(b[200:208]))
	require.NoError(t, k.Close())
	_, err = k.Bytes()
	require.ErrorIs(t, err, ucp.ErrClosed)
}

func keyCompare(t *testing.T, p *Pair) {
	a, err := p.Context.Allocate(64, ucp.MemConfig{})
	require.NoError(t, err)
	b, err := p.Context.Allocate(64, ucp.MemConfig{})
	require.NoError(t, err)
	assert.Equal(t, a.Key(), a.Key())
	assert.NotEqual(t, a.Key(), b.Key())
	clear(a.Key())
	assert.NotEqual(t, make(ucp.Key, len(a.Key())), a.Key(), "Key gives a copy")
	assert.Contains(t, a.Key().String(), "key to 64 bytes")
}

func memSizes(t *testing.T, p *Pair) {
	for _, n := range []int{0, 1, 7, 4095, 4096, 4097, 1 << 20} {
		m, err := p.Context.Allocate(n, ucp.MemConfig{})
		require.NoError(t, err)
		require.Len(t, m.Bytes(), n)
		require.True(t, zero(m.Bytes()))
		assert.Equal(t, uint64(n), p.unpack(m).Len())
		r, err := p.Context.Register(m.Bytes(), ucp.MemConfig{})
		require.NoError(t, err, "the same memory twice")
		if n > 0 {
			require.NoError(t, p.Wait(p.unpack(r).Put([]byte{9}, uint64(n-1))))
			require.NoError(t, p.Wait(p.AB.Flush()))
			assert.Equal(t, byte(9), m.Bytes()[n-1])
		}
		require.NoError(t, r.Close())
		require.NoError(t, m.Close())
	}
	_, err := p.Context.Allocate(-1, ucp.MemConfig{})
	require.ErrorIs(t, err, ucp.ErrInvalid)
	_, err = p.Context.Allocate(64, ucp.MemConfig{Access: 0x80})
	require.ErrorIs(t, err, ucp.ErrInvalid)
}

func memQuery(t *testing.T, p *Pair) {
	all := ucp.AccessLocal | ucp.AccessRemotePut | ucp.AccessRemoteGet | ucp.AccessRemoteAtomic
	m, err := p.Context.Allocate(5000, ucp.MemConfig{})
	require.NoError(t, err)
	q := m.Query()
	assert.NotZero(t, q.Base)
	assert.Equal(t, 5000, q.Len)
	assert.Equal(t, all, q.Access)
	assert.True(t, q.Allocated)
	for _, c := range p.Factory.Providers {
		assert.True(t, slices.ContainsFunc(q.Transports, func(name string) bool {
			return name == c.Name() || strings.HasPrefix(name, c.Name()+"/")
		}), "%v have no %s", q.Transports, c.Name())
	}
	assert.Empty(t, q.Refused)
	m, err = p.Context.Register(make([]byte, 30), ucp.MemConfig{Access: ucp.AccessRemoteGet})
	require.NoError(t, err)
	q = m.Query()
	assert.Equal(t, 30, q.Len)
	assert.Equal(t, ucp.AccessLocal|ucp.AccessRemoteGet, q.Access)
	assert.False(t, q.Allocated)
}

// keyAfterClose: what comes after the owner's close is refused, and nothing is
// written.
func keyAfterClose(t *testing.T, p *Pair) {
	buf := make([]byte, 4096)
	for name, open := range map[string]func() (*ucp.MemHandle, error){
		"registered": func() (*ucp.MemHandle, error) { return p.Context.Register(buf, ucp.MemConfig{}) },
		"allocated":  func() (*ucp.MemHandle, error) { return p.Context.Allocate(4096, ucp.MemConfig{}) },
	} {
		m, err := open()
		require.NoError(t, err)
		k, key := p.unpack(m), m.Key()
		require.NoError(t, p.Wait(k.PutUint64(1, 0)))
		require.NoError(t, p.Wait(p.AB.Flush()))
		require.NoError(t, m.Close(), name)
		require.NoError(t, m.Close(), "twice")
		assert.Nil(t, m.Bytes())
		clear(buf)
		for _, do := range []func(k *ucp.RemoteKey) error{
			func(k *ucp.RemoteKey) error { return p.Wait(k.Put(pattern(8, 1), 0)) },
			func(k *ucp.RemoteKey) error { return p.Wait(k.Put(pattern(1000, 1), 0)) },
			func(k *ucp.RemoteKey) error { return p.Wait(k.PutUint64(1, 0)) },
			func(k *ucp.RemoteKey) error { return p.Wait(k.PutInline([]byte{1}, 0)) },
			func(k *ucp.RemoteKey) error { return p.Wait(k.Get(make([]byte, 8), 0)) },
			func(k *ucp.RemoteKey) error { return p.Wait(k.Get(make([]byte, 1000), 0)) },
			func(k *ucp.RemoteKey) error { return p.Wait(atomicAt[uint64](t, k, 64).Add(1)) },
			func(k *ucp.RemoteKey) error { return p.Wait(atomicAt[uint32](t, k, 64).Or(1)) },
			func(k *ucp.RemoteKey) error { _, err := p.value(k.GetUint64(0)); return err },
			func(k *ucp.RemoteKey) error { _, err := p.value(atomicAt[uint64](t, k, 64).Swap(1)); return err },
		} {
			k = p.denied(k, key, name, do)
		}
		_, err = p.AB.UnpackKey(key)
		if err != nil { // a transport that asks the owner
			require.ErrorIs(t, err, ucp.ErrRemoteAccess, name)
		}
		require.True(t, zero(buf), name)
		// Memory that comes after it is not reached by the old key.
		next, err := open()
		require.NoError(t, err)
		p.denied(k, key, name, func(k *ucp.RemoteKey) error { return p.Wait(k.PutUint64(1, 0)) })
		require.True(t, zero(next.Bytes()))
		require.NoError(t, next.Close())
	}
}

// denied wants the operation do by k to fail, since the owner closed the memory:
// itself, or where it is done when it was sent, the flush after it. Where the
// endpoint fails with it, there is a new one after, and a new key.
func (p *Pair) denied(k *ucp.RemoteKey, key ucp.Key, name string, do func(k *ucp.RemoteKey) error) *ucp.RemoteKey {
	p.T.Helper()
	err := do(k)
	if err == nil {
		err = p.Wait(p.AB.Flush())
	}
	require.ErrorIs(p.T, err, ucp.ErrRemoteAccess, name)
	if p.AB.Info().Err == nil {
		require.NoError(p.T, p.Wait(p.AB.Flush()), "it is reported once")
		return k
	}
	require.NoError(p.T, p.AB.Close())
	p.AB = p.Connect(p.A, p.B)
	k, err = p.AB.UnpackKey(key)
	require.NoError(p.T, err)
	return k
}

func memContextClose(t *testing.T, p *Pair) {
	c, err := p.Factory.open(ucp.Config{})
	require.NoError(t, err)
	m, err := c.Allocate(100, ucp.MemConfig{})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	assert.Nil(t, m.Bytes())
	require.NoError(t, m.Close())
	_, err = c.Allocate(100, ucp.MemConfig{})
	require.ErrorIs(t, err, ucp.ErrClosed)
	_, err = c.Register(make([]byte, 10), ucp.MemConfig{})
	require.ErrorIs(t, err, ucp.ErrClosed)
}

func keyDamaged(t *testing.T, p *Pair) {
	m, err := p.Context.Allocate(64, ucp.MemConfig{})
	require.NoError(t, err)
	key := m.Key()
	for i := range key {
		bad := bytes.Clone(key)
		bad[i] ^= 1 << (i % 8)
		_, err := p.AB.UnpackKey(bad)
		require.ErrorIs(t, err, ucp.ErrInvalid, "byte %d", i)
		_, err = p.AB.UnpackKey(key[:i])
		require.ErrorIs(t, err, ucp.ErrInvalid, "cut at %d", i)
	}
	_, err = p.AB.UnpackKey(append(key, 0))
	require.ErrorIs(t, err, ucp.ErrInvalid)
}

func keyEndpointClose(t *testing.T, p *Pair) {
	m, k := p.lend(64)
	a := atomicAt[uint64](t, k, 0)
	require.NoError(t, p.Close(p.A, p.AB))
	require.ErrorIs(t, p.Wait(k.PutUint64(1, 0)), ucp.ErrClosed)
	require.ErrorIs(t, p.Wait(a.Add(1)), ucp.ErrClosed)
	require.NoError(t, k.Close())
	p.AB = p.Connect(p.A, p.B)
	k = p.unpack(m)
	require.NoError(t, p.Wait(k.PutUint64(5, 0)))
	require.NoError(t, p.Wait(p.AB.Flush()))
	assert.Equal(t, uint64(5), m.Load64(0))
}
