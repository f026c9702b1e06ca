package soft

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestReregister: a region names other memory under another key each time, whether
// it was closed in between or not, and the keys before find nothing.
func TestReregister(t *testing.T) {
	d := openTest(t, Config{})
	p := testPD(t, d)
	m := testMR(t, p, 8, verbs.LocalWrite)
	seen := map[uint32]bool{}
	for i := range 200 { // at worst all in one place
		require.False(t, seen[m.key], "a key came back")
		seen[m.key] = true
		before, buf := m.key, make([]byte, 8+i)
		if i%2 == 0 {
			require.NoError(t, m.Close())
			require.Nil(t, m.Bytes(), "a closed region holds no memory")
		}
		require.NoError(t, verbs.Reregister(m, p, buf, verbs.MRConfig{IOVA: 64, HasIOVA: true}))
		require.Nil(t, d.mrs.find(before))
		require.Same(t, m, d.mrs.find(m.key))
		require.Same(t, &buf[0], &m.at(64, len(buf))[0])
		require.Equal(t, verbs.Access(0), m.access)
	}
	refused(t, p.Close(), ucs.ErrBusy, "1 objects")
}

func TestReregisterRefused(t *testing.T) {
	d := openTest(t, Config{Limits: Limits{MRs: 1}})
	p := testPD(t, d)
	m := testMR(t, p, 8, 0)
	key := m.key
	refused(t, m.Reregister(nil, m.buf, verbs.MRConfig{}), ucs.ErrInvalid, "no protection domain")
	refused(t, m.Reregister(testPD(t, openTest(t, Config{})), m.buf, verbs.MRConfig{}), ucs.ErrInvalid, "another device")
	refused(t, m.Reregister(p, nil, verbs.MRConfig{}), ucs.ErrInvalid, "no bytes")
	refused(t, m.Reregister(p, m.buf, verbs.MRConfig{Access: verbs.OnDemand}), ucs.ErrUnsupported, "access")
	assert.Same(t, m, d.mrs.find(key), "it is as it was")

	require.NoError(t, m.Close())
	other, err := p.Register(make([]byte, 8), verbs.MRConfig{})
	require.NoError(t, err)
	refused(t, m.Reregister(p, make([]byte, 8), verbs.MRConfig{}), ucs.ErrNoResource, "1 are open")
	require.NoError(t, other.Close())

	to := testPD(t, d)
	require.NoError(t, m.Reregister(to, make([]byte, 8), verbs.MRConfig{}))
	_, ok := d.local(p, verbs.SGE{Addr: m.addr, Len: 8, LKey: m.key}, 0)
	assert.False(t, ok, "it is of another domain now")
	_, ok = d.local(to, verbs.SGE{Addr: m.addr, Len: 8, LKey: m.key}, 0)
	assert.True(t, ok)
	refused(t, to.Close(), ucs.ErrBusy, "1 objects")
	require.NoError(t, m.Close())
}

// TestReregisterAllocates nothing, also while queue pairs are at work.
func TestReregisterAllocates(t *testing.T) {
	d := openTest(t, Config{})
	p, c := testPD(t, d), testCQ(t, d, verbs.CQConfig{Depth: 10})
	v, err := p.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c})
	require.NoError(t, err)
	closeAtEnd(t, v)
	m := testMR(t, p, 8, 0)
	buf := make([]byte, 8)
	gate(t, func() {
		v.(*qp).markMemoryUser()
		_ = m.Close()
		_ = m.Reregister(p, buf, verbs.MRConfig{})
	})
	assert.NotNil(t, m.Bytes())
}
