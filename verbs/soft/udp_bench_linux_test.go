package soft

import (
	"testing"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

// drain receives until n packets came, opens each, and gives the bytes of their
// payloads.
func drain(b *testing.B, u *udp.Socket, from *udp.Peer, n int, p *packet) (bytes int) {
	for n > 0 {
		for _, d := range u.Recv() {
			if !from.Matches(d) {
				b.Fatal("source")
			}
			for i := range d.Packets() {
				if f, ok := decodePacket(d, i, p, udp.ICRCSearch); f != wire.FaultNone || !ok {
					b.Fatal(f, ok)
				}
				bytes += p.n
				n--
			}
		}
	}
	return bytes
}

// BenchmarkUDPPingPong: one 8 B packet there and one back, by one goroutine: two
// times sendmsg and recvmsg with all that is ours around them.
func BenchmarkUDPPingPong(b *testing.B) {
	u, v, toV, toU := udpPair(b, loopback)
	out := &packet{Header: wire.Header{Opcode: wire.SendOnly, PKey: 0xffff, DestQP: 5}, n: 8, nsg: 1, sg: [verbs.MaxSGE][]byte{make([]byte, 8)}}
	in := new(packet)
	hop := func(from, to *udp.Socket, p, back *udp.Peer) {
		t := from.Begin(p)
		if !addPacket(t, out) || t.Send() != ucs.OK {
			b.Fatal("send")
		}
		drain(b, to, back, 1, in)
	}
	b.ReportAllocs()
	for b.Loop() {
		hop(u, v, &toV, &toU)
		hop(v, u, &toU, &toV)
		out.PSN = out.PSN.Add(1)
	}
}

// BenchmarkUDPTrains: 1 MB as packets of 4 KB in trains of 15, received and
// checked by the same goroutine.
func BenchmarkUDPTrains(b *testing.B) { benchTrains(b, 4096, 256, true) }

// BenchmarkUDPTrainsOff is the same without segmentation.
func BenchmarkUDPTrainsOff(b *testing.B) { benchTrains(b, 4096, 256, false) }

// BenchmarkUDPTrains1K: 64 KB as packets of 1 KB.
func BenchmarkUDPTrains1K(b *testing.B) { benchTrains(b, 1024, 62, true) }

// BenchmarkUDPSmall: 64 packets of 8 B in a train.
func BenchmarkUDPSmall(b *testing.B) { benchTrains(b, 8, 64, true) }

// BenchmarkUDPSmallOff is the same without segmentation.
func BenchmarkUDPSmallOff(b *testing.B) { benchTrains(b, 8, 64, false) }

func benchTrains(b *testing.B, size, packets int, gso bool) {
	u, v, toV, toU := udpPair(b, loopback)
	u.GSO.Store(gso)
	out := &packet{Header: wire.Header{Opcode: wire.WriteMiddle, PKey: 0xffff, DestQP: 5}, n: size, nsg: 1, sg: [verbs.MaxSGE][]byte{make([]byte, size)}}
	in := new(packet)
	b.SetBytes(int64(size * packets))
	b.ReportAllocs()
	for b.Loop() {
		for left := packets; left > 0; {
			t, n := u.Begin(&toV), 0
			for ; n < left && addPacket(t, out); n++ {
				out.PSN = out.PSN.Add(1)
			}
			if t.Send() != ucs.OK {
				b.Fatal("send")
			}
			left -= n
			drain(b, v, &toU, n, in)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*packets), "ns/packet")
}

func BenchmarkCodec(b *testing.B) {
	for _, op := range []wire.Opcode{wire.SendOnly, wire.Acknowledge, wire.WriteOnly, wire.CompareSwap, wire.UDSendOnly} {
		n := 0
		if op.Info().Payload {
			n = 8
		}
		p := &packet{Header: wire.Header{Opcode: op, PKey: 0xffff, DestQP: 5}, n: n, nsg: 1, sg: [verbs.MaxSGE][]byte{make([]byte, n)}}
		buf := make([]byte, 128)
		b.Run("encode/"+op.String(), func(b *testing.B) {
			for b.Loop() {
				p.encode(buf)
			}
		})
		b.Run("decode/"+op.String(), func(b *testing.B) {
			k := p.encode(buf)
			var q packet
			for b.Loop() {
				q.decode(buf[:k])
			}
		})
	}
}
