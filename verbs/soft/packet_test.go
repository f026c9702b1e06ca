package soft

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// allOpcodes are those of the table.
func allOpcodes() (ops []wire.Opcode) {
	for o := range 256 {
		if op := wire.Opcode(o); op.Info().Kind != wire.KindNone {
			ops = append(ops, op)
		}
	}
	return ops
}

// randomPacket has n bytes of payload in up to four pieces, and every field that
// its opcode carries.
func randomPacket(r *rand.Rand, op wire.Opcode, n int) *packet {
	p := &packet{n: n, Header: wire.Header{
		Opcode: op, Solicited: r.IntN(2) == 0, AckReq: r.IntN(2) == 0, PKey: uint16(r.Uint32()),
		DestQP: verbs.QPN(r.Uint32() >> 8), PSN: verbs.PSN(r.Uint32() >> 8),
	}}
	has := op.Info().Headers
	if has&wire.HasAETH != 0 {
		p.Syndrome, p.MSN = wire.Syndrome(r.Uint32()), r.Uint32()>>8
	}
	if has&(wire.HasImm|wire.HasIETH) != 0 {
		p.ImmDt = r.Uint32()
	}
	if has&(wire.HasRETH|wire.HasAtomicETH) != 0 {
		p.VA, p.RKey = r.Uint64(), r.Uint32()
	}
	if has&wire.HasRETH != 0 {
		p.DMALen = r.Uint32()
	}
	if has&wire.HasAtomicETH != 0 {
		p.SwapDt, p.CmpDt = r.Uint64(), r.Uint64()
	}
	if has&wire.HasAtomicAckETH != 0 {
		p.OrigRemDt = r.Uint64()
	}
	if has&wire.HasDETH != 0 {
		p.QKey, p.SrcQP = r.Uint32(), verbs.QPN(r.Uint32()>>8)
	}
	p.PadCnt = uint8(wire.Pad(n))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	for p.nsg = 0; p.nsg < verbs.MaxSGE-1 && len(data) > 0; p.nsg++ {
		k := r.IntN(len(data) + 1)
		p.sg[p.nsg], data = data[:k], data[k:]
	}
	p.sg[p.nsg] = data
	p.nsg++
	return p
}

// flat is p with its payload in one piece of its own.
func flat(p *packet) packet {
	q := *p
	q.nsg, q.sg = 1, [verbs.MaxSGE][]byte{bytes.Join(p.sg[:p.nsg], nil)}
	return q
}

// payloadOf draws a length that the opcode may carry.
func payloadOf(r *rand.Rand, op wire.Opcode) int {
	if !op.Info().Payload {
		return 0
	}
	return r.IntN(600)
}

func TestCodecRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, op := range allOpcodes() {
		t.Run(op.String(), func(t *testing.T) {
			for range 50 {
				p := randomPacket(r, op, payloadOf(r, op))
				b := bytes.Repeat([]byte{0xaa}, 1024)
				n := p.encode(b)
				require.Equal(t, p.Opcode.Info().PacketLen(p.n)-wire.ICRCLen, n)
				w, f := wire.Parse(b[:n+wire.ICRCLen])
				require.Equal(t, wire.FaultNone, f)
				require.True(t, bytes.Equal(flat(p).sg[0], w.Payload))
				var q packet
				require.Equal(t, wire.FaultNone, q.decode(b[:n]))
				assert.Equal(t, flat(p), flat(&q))
			}
		})
	}
}

// Whatever the bytes, decode agrees with wire.Parse and never panics; what it
// takes comes out again as it was.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, op := range allOpcodes() {
		b := make([]byte, 1024)
		f.Add(b[:randomPacket(r, op, payloadOf(r, op)).encode(b)])
	}
	f.Add([]byte("0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p packet
		fault := p.decode(b)
		_, want := wire.Parse(append(bytes.Clone(b), 0, 0, 0, 0))
		require.Equal(t, want, fault)
		if fault != wire.FaultNone {
			return // p is undefined
		}
		again := make([]byte, len(b)+wire.MaxHeaderLen)
		n := p.encode(again)
		require.Equal(t, len(b), n)
		var q packet
		require.Equal(t, wire.FaultNone, q.decode(again[:n]))
		require.Equal(t, flat(&p), flat(&q))
	})
}
