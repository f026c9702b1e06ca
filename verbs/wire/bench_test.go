package wire

import (
	"fmt"
	"hash/crc32"
	"net/netip"
	"testing"
)

var sink uint32

func BenchmarkICRC(b *testing.B) {
	p := NewPrefix(netip.MustParseAddrPort("10.0.0.1:40000"), netip.MustParseAddrPort("10.0.0.2:4791"))
	p6 := NewPrefix(netip.MustParseAddrPort("[fd00::1]:40000"), netip.MustParseAddrPort("[fd00::2]:4791"))
	for _, n := range []int{20, 64, 1024, 4096} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i)
		}
		run := func(name string, f func()) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(n))
				for b.Loop() {
					f()
				}
			})
		}
		run("plain", func() { sink = crc32.Update(7, crc32.IEEETable, data) })
		run("seal", func() { p.Seal(data, 3) })
		run("seal6", func() { p6.Seal(data, 0) })
		p.Seal(data, 3)
		run("check", func() {
			if _, ok := p.Check(data, 3); !ok {
				b.Fatal()
			}
		})
		run("solve", func() {
			if id, ok := p.Check(data, 4); !ok || id != 3 {
				b.Fatal()
			}
		})
	}
}

func BenchmarkHeader(b *testing.B) {
	for _, op := range []Opcode{SendOnly, Acknowledge, WriteOnly, CompareSwap, UDSendOnly} {
		data := build(sample(op, ""))
		var h Header
		b.Run("parse/"+op.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, f := h.Parse(data[:len(data)-ICRCLen]); f != FaultNone {
					b.Fatal(f)
				}
			}
		})
		buf := make([]byte, MaxHeaderLen)
		b.Run("put/"+op.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.Put(buf)
			}
		})
	}
}
