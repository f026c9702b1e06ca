package nic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

func BenchmarkPiece(b *testing.B) {
	d := domain(b)
	m, err := d.Allocate(4096, 0)
	require.NoError(b, err)
	v := uct.Vec{Buf: m.Bytes()[:100], Mem: m}
	var s verbs.SGE
	b.ReportAllocs()
	for b.Loop() {
		if !d.FillSGE(&v, &s) {
			b.Fatal("no piece")
		}
	}
	require.NoError(b, m.Close())
}

func BenchmarkKey(b *testing.B) {
	d := domain(b)
	m, err := d.Allocate(4096, uct.MemRemotePut)
	require.NoError(b, err)
	k, err := d.UnpackKey(m.AppendKey(nil))
	require.NoError(b, err)
	at := AddressOf(m.Bytes())
	b.ReportAllocs()
	for b.Loop() {
		if d.Key(k).Allows(at, 8, uct.MemRemotePut) != ucs.OK {
			b.Fatal("refused")
		}
	}
	require.NoError(b, m.Close())
}

func BenchmarkSlab(b *testing.B) {
	d := domain(b)
	s, err := NewSlab(d.PD(), 16, 64)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		i, _ := s.Take()
		s.Put(i)
	}
	require.NoError(b, s.Close())
}
