package nic

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol/protocoltest"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// component is a transport without interfaces on the in-process device.
func component() *Component {
	t := Transport{Name: "none", ID: 99, RMA: uct.OpsPut | uct.OpsGet | uct.OpAtomics, Atomic64: 1 << uct.AtomicAdd}
	t.Open = func(*Domain, uint8, uct.IfaceConfig) (uct.Iface, error) { return nil, ucs.ErrUnsupported }
	return NewComponent(t, Share(inproc))
}

func inproc(*config.Set, *zap.Logger) []verbs.Provider {
	return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkInproc})}
}

func domain(t testing.TB) *Domain {
	c := component()
	infos, refused := c.Domains(nil)
	require.Empty(t, refused)
	require.Equal(t, []uct.DomainInfo{{Component: "none", Name: "inproc"}}, infos)
	d, err := c.OpenDomain(infos[0], uct.DomainConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d.(*Domain)
}

func TestDomain(t *testing.T) {
	d := domain(t)
	ifs, refused := d.Ifaces()
	require.Empty(t, refused)
	require.Equal(t, []uct.IfaceInfo{{Transport: "none", ID: 99, Device: "inproc:1", Kind: uct.DeviceNet}}, ifs)
	_, err := d.OpenIface(ifs[0], uct.IfaceConfig{})
	require.ErrorIs(t, err, ucs.ErrInvalid, "no handler")
	m, err := d.Allocate(10, uct.MemRemote)
	require.NoError(t, err)
	require.ErrorIs(t, d.Close(), ucs.ErrBusy)
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	require.NoError(t, d.Close())
	_, err = d.Register(make([]byte, 1), 0)
	require.ErrorIs(t, err, ucs.ErrClosed)
}

func TestNoSuchDevice(t *testing.T) {
	c := component()
	for _, i := range []uct.DomainInfo{{Component: "none", Name: "other"}, {Component: "other", Name: "inproc"}} {
		_, err := c.OpenDomain(i, uct.DomainConfig{})
		require.ErrorIs(t, err, ucs.ErrInvalid)
	}
	d := domain(t)
	_, err := d.OpenIface(uct.IfaceInfo{Transport: "none", Device: "inproc:2"}, uct.IfaceConfig{Handler: nobody{}})
	require.ErrorIs(t, err, ucs.ErrInvalid)
}

type nobody struct{ uct.Handler }

func TestRevoke(t *testing.T) {
	d := domain(t)
	m, err := d.Allocate(64, uct.MemRemotePut)
	require.NoError(t, err)
	mem := m.(*Mem)
	require.NotNil(t, mem.remote)
	require.NotEqual(t, mem.local.RKey(), mem.remote.RKey(), "peers have a key of their own")
	require.Equal(t, ucs.OK, m.Revoke())
	require.Nil(t, mem.remote)
	require.Equal(t, ucs.OK, m.Revoke())
	var s verbs.SGE
	require.True(t, d.FillSGE(&uct.Vec{Buf: m.Bytes()[8:], Mem: m}, &s), "its owner uses it still")
	require.NoError(t, m.Close())
}

// A closed region is registered again, with other memory and other rights; what was
// its key is none any more.
func TestReregister(t *testing.T) {
	d := domain(t)
	m, err := d.Allocate(64, uct.MemRemotePut)
	require.NoError(t, err)
	again := m.(uct.Reusable)
	buf := make([]byte, 100)
	require.ErrorIs(t, again.Reregister(buf, 0), ucs.ErrBusy, "it is open")
	require.NoError(t, m.Close())
	require.Nil(t, m.Bytes())
	require.ErrorIs(t, again.Reregister(nil, 0), ucs.ErrInvalid)
	var s verbs.SGE
	for _, f := range []uct.MemFlags{0, uct.MemRemoteGet, uct.MemRemotePut, 0} {
		mem := m.(*Mem)
		before := mem.lkey
		require.NoError(t, again.Reregister(buf, f))
		require.Same(t, &buf[0], &m.Bytes()[0])
		require.NotEqual(t, before, mem.lkey)
		require.Equal(t, f, mem.key.flags)
		require.Equal(t, f != 0, mem.remote != nil)
		require.True(t, d.FillSGE(&uct.Vec{Buf: buf, Mem: m}, &s))
		require.Equal(t, mem.lkey, s.LKey)
		require.ErrorIs(t, d.Close(), ucs.ErrBusy)
		require.NoError(t, m.Close())
		require.NoError(t, m.Close())
		require.False(t, d.FillSGE(&uct.Vec{Buf: buf, Mem: m}, &s), "it is closed")
	}
	require.NoError(t, d.Close())
	require.ErrorIs(t, again.Reregister(buf, 0), ucs.ErrClosed)
}

func TestPiece(t *testing.T) {
	d, other := domain(t), domain(t)
	buf := make([]byte, 100)
	m, err := d.Register(buf[10:90], 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	var s verbs.SGE
	require.True(t, d.FillSGE(&uct.Vec{Buf: buf[10:90], Mem: m}, &s))
	require.Equal(t, verbs.SGE{Addr: AddressOf(buf) + 10, Len: 80, LKey: m.(*Mem).lkey}, s)
	require.True(t, d.FillSGE(&uct.Vec{Buf: buf[90:90], Mem: m}, &s), "nothing, at the end")
	for _, v := range []uct.Vec{{Buf: buf[9:20], Mem: m}, {Buf: buf[80:91], Mem: m}, {Buf: buf[10:11]}} {
		require.False(t, d.FillSGE(&v, &s))
	}
	require.False(t, other.FillSGE(&uct.Vec{Buf: buf[10:90], Mem: m}, &s), "another domain")
}

func TestKeys(t *testing.T) {
	d := domain(t)
	m, err := d.Allocate(100, uct.MemRemotePut|uct.MemRemoteAtomic)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	var ks []uct.RKey
	for range 3 * keyChunk { // more than a chunk
		k, err := d.UnpackKey(m.AppendKey(nil))
		require.NoError(t, err)
		ks = append(ks, k)
	}
	base := AddressOf(m.Bytes())
	for _, k := range ks {
		require.Equal(t, uct.KeyAttr{Ops: uct.OpsPut | uct.OpAtomics, Atomic64: 1 << uct.AtomicAdd}, d.KeyAttr(k))
		require.Equal(t, ucs.OK, d.Key(k).Allows(base, 100, uct.MemRemotePut))
		require.Equal(t, ucs.OK, d.Key(k).Allows(base+100, 0, uct.MemRemotePut))
		for _, bad := range []uct.Status{
			d.Key(k).Allows(base, 101, uct.MemRemotePut), d.Key(k).Allows(base-1, 1, uct.MemRemotePut),
			d.Key(k).Allows(base+101, 0, uct.MemRemotePut), d.Key(k).Allows(base, 1, uct.MemRemoteGet),
		} {
			require.Equal(t, ucs.InvalidParam, bad)
		}
	}
	for _, k := range ks {
		d.ReleaseKey(k)
		d.ReleaseKey(k)
		require.Zero(t, d.KeyAttr(k))
	}
	require.Len(t, d.keys.free, len(ks))
	for _, k := range []uct.RKey{0, 1 << 63, uct.RKey(len(ks) + 1)} {
		require.Zero(t, d.KeyAttr(k))
		d.ReleaseKey(k)
	}
}

func TestPackedKey(t *testing.T) {
	p := packedKey{flags: uct.MemRemote, rkey: 0x01020304, base: 0x1000, size: 77}
	b := p.append(nil)
	require.Equal(t, "475558520107000004030201"+"0010000000000000"+"4d00000000000000"+"082c3a81", hex.EncodeToString(b), "docs/wire/rc.md")
	var q packedKey
	require.NoError(t, q.parse(b))
	require.Equal(t, p, q)
	for n := range b {
		require.ErrorIs(t, q.parse(b[:n]), ErrKey)
	}
	for bit := range len(b) * 8 {
		c := append([]byte(nil), b...)
		c[bit/8] ^= 1 << (bit % 8)
		require.ErrorIs(t, q.parse(c), ErrKey, "bit %d", bit)
	}
	for _, bad := range []packedKey{{size: 0}, {base: ^uint64(0), size: 2}, {flags: 8, size: 1}} {
		require.ErrorIs(t, q.parse(bad.append(nil)), ErrKey)
	}
}

func TestPackedKeyVersions(t *testing.T) {
	p := packedKey{flags: uct.MemRemote, rkey: 0x01020304, base: 0x1000, size: 77}
	protocoltest.Run(t, protocoltest.Golden{
		Format: &keyFormat, File: "key", Version: keyOffVersion, Features: keyOffFeatures,
		Bytes: p.append(nil), Want: p, Seal: resum,
		Decode: func(b []byte) (any, error) {
			var got packedKey
			err := got.parse(b)
			return got, err
		},
	})
}

func FuzzPackedKey(f *testing.F) {
	p := packedKey{flags: uct.MemRemotePut, rkey: 1, base: 4096, size: 1}
	f.Add(p.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p packedKey
		if p.parse(b) == nil {
			if b[keyOffFeatures] == 0 {
				assert.Equal(t, b, p.append(nil))
			}
			var again packedKey
			assert.NoError(t, again.parse(p.append(nil)))
			assert.Equal(t, p, again)
		}
	})
}

func TestPortAddress(t *testing.T) {
	d, other := domain(t), domain(t)
	a, err := d.PortAddress(1)
	require.NoError(t, err)
	b, err := other.PortAddress(1)
	require.NoError(t, err)
	require.NotEqual(t, a.GID, b.GID)
	ok, why := a.Reaches(&b)
	require.True(t, ok, why)

	_, err = d.PortAddress(2)
	require.Error(t, err)
}

func TestReaches(t *testing.T) {
	v4, v6 := verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, verbs.GID{0: 0xfd, 15: 1}
	loop := PortAddress{Fabric: FabricHost, GID: verbs.GID{10: 0xff, 11: 0xff, 12: 127, 15: 1}, ScopeID: 1}
	net4, net6 := PortAddress{GID: v4}, PortAddress{GID: v6}
	for _, c := range []struct {
		a, b PortAddress
		why  string
	}{
		{net4, net4, ""},
		{net6, net6, ""},
		{net4, net6, "IPv4"},
		{net4, loop, "kind of network"},
		{loop, loop, ""},
		{loop, PortAddress{Fabric: FabricHost, GID: loop.GID, ScopeID: 2}, "host"},
		{PortAddress{GID: v4, ScopeID: 1}, PortAddress{GID: v4, ScopeID: 2}, "same address"},
		{PortAddress{GID: v4, ScopeID: 1}, PortAddress{GID: verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}, ScopeID: 2}, ""},
		{PortAddress{Fabric: FabricProcess, ScopeID: 1}, PortAddress{Fabric: FabricProcess, ScopeID: 2}, "process"},
	} {
		ok, why := c.a.Reaches(&c.b)
		require.Equal(t, c.why == "", ok)
		require.Contains(t, why, c.why)
	}
}

func TestSlab(t *testing.T) {
	d := domain(t)
	th, err := d.NewThread(uct.Resources{})
	require.NoError(t, err)
	s, err := NewSlab(th.PD, 3, 100)
	require.NoError(t, err)
	for want := range uint32(3) {
		i, ok := s.Take()
		require.True(t, ok)
		require.Equal(t, want, i)
		require.Len(t, s.Bytes(i), 100)
		require.Equal(t, verbs.SGE{Addr: AddressOf(s.Bytes(i)), Len: 50, LKey: s.lkey}, s.SGE(i, 50))
		require.Equal(t, AddressOf(s.Mem())+uint64(s.Offset(i)), AddressOf(s.Bytes(i)))
	}
	_, ok := s.Take()
	require.False(t, ok)
	s.Put(1)
	require.Equal(t, 1, s.Free())
	i, _ := s.Take()
	require.Equal(t, uint32(1), i)
	require.NoError(t, s.Close())
	require.NoError(t, th.Close())
}
