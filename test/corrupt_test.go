//go:build linux

package test

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// damage gives every truncation of b and every byte of it changed in nine ways.
func damage(b []byte, each func(bad []byte)) {
	for n := range len(b) {
		each(slices.Clone(b[:n]))
	}
	each(append(slices.Clone(b), 0))
	for i := range b {
		for bit := range 8 {
			bad := slices.Clone(b)
			bad[i] ^= 1 << bit
			each(bad)
		}
		bad := slices.Clone(b)
		bad[i] = ^bad[i]
		each(bad)
	}
}

// reseal makes the length field, at offset 6 in addresses and keys, and the
// checksum at the end fit again, so that what lies behind them sees the damage.
func reseal(b []byte) []byte {
	if len(b) < 12 {
		return b
	}
	b = slices.Clone(b)
	binary.LittleEndian.PutUint16(b[6:], uint16(len(b)))
	sum := crc32.Checksum(b[:len(b)-4], table)
	binary.LittleEndian.PutUint32(b[len(b)-4:], sum)
	return b
}

// TestDamagedAddress: an error, or, where the damage is resealed, an endpoint
// that reaches somebody or nobody; never a panic, a hang or a leak.
func TestDamagedAddress(t *testing.T) {
	before := takeCensus(t)
	s := open(t, ucp.ThreadSingle)
	v, _ := startCollector(t, s)
	address, err := hex.DecodeString(v.address)
	require.NoError(t, err)
	tried, made := 0, 0
	damage(address, func(bad []byte) {
		tried++
		_, err := s.w.NewEndpoint(bad, ucp.EndpointConfig{Eager: true})
		require.ErrorIs(t, err, ucp.ErrInvalid)
		e, err := s.w.NewEndpoint(reseal(bad), ucp.EndpointConfig{Eager: true})
		if err != nil {
			return
		}
		made++
		sent := e.TagSendUint64(1, tagNever)
		s.w.Progress()
		_ = sent.Err()
		_ = e.Close() // an error is as good
	})
	t.Logf("%d damaged addresses, %d of them connected when resealed", tried, made)
	until(t, func() bool { return len(maps(t, "self", "goucx-pair")) == 0 }, s.progressLong)
	requireAlive(t, s, v, 1)
	require.NoError(t, s.x.Close())
	v.p.kill()
	requireBack(t, before)
}

// requireAlive: the collector takes numbered messages as ever.
func requireAlive(t testing.TB, s *node, v meeting, id uint32) {
	t.Helper()
	e := s.dial(t, v.address)
	require.NoError(t, ucp.WaitAll(bounded(t), pusher(e, id)(pushes), nil))
	v.p.say(pushes)
	v.p.expect("collected 300")
	require.NoError(t, e.Close())
}

// TestDamagedKey is the same for keys. What a resealed key opens is used.
func TestDamagedKey(t *testing.T) {
	withinHost(t)
	for _, kind := range []string{"allocated", "own"} {
		t.Run(kind, func(t *testing.T) { damagedKey(t, kind) })
	}
}

func damagedKey(t *testing.T, kind string) {
	s := open(t, ucp.ThreadSingle)
	p := start(t, "peer")
	p.say(kind)
	e := s.dial(t, p.hear())
	p.say(s.address())
	p.say("go")
	key, err := hex.DecodeString(p.hear())
	require.NoError(t, err)
	good, err := e.UnpackKey(key)
	require.NoError(t, err)
	useDamaged(t, good) // the first use of a kind of operation connects
	before := takeCensus(t)
	tried, made := 0, 0
	damage(key, func(bad []byte) {
		tried++
		_, err := e.UnpackKey(bad)
		require.ErrorIs(t, err, ucp.ErrInvalid)
		k, err := e.UnpackKey(reseal(bad))
		if err != nil {
			return
		}
		made++
		useDamaged(t, k)
		require.NoError(t, k.Close())
	})
	t.Logf("%d damaged keys, %d of them opened something when resealed", tried, made)
	requireBack(t, before)
	ctx := bounded(t)
	require.NoError(t, good.PutUint64(42, 8).Wait(ctx), "the owner lives")
	v, err := good.GetUint64(8).Wait(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 42, v)
}

// useDamaged reads and writes at both ends and beyond; it may fail.
func useDamaged(t *testing.T, k *ucp.RemoteKey) {
	ctx := bounded(t)
	for _, off := range []uint64{0, 4088, 4096, k.Len() - 8, k.Len(), 1 << 40} {
		_, _ = k.GetUint64(off).Wait(ctx)
		_ = k.PutUint64(1, off).Wait(ctx)
		if a, err := ucp.AtomicAt[uint32](k, off); err == nil {
			_, _ = a.FetchAdd(1).Wait(ctx)
		}
	}
	_ = k.Get(make([]byte, 8192), 0).Wait(ctx)
	if b, err := k.Bytes(); err == nil && len(b) > 0 {
		_ = b[len(b)-1]
	}
}
