package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

// build makes a packet with an ICRC of zeros.
func build(p *Packet) []byte {
	b := append(p.Append(nil), p.Payload...)
	return append(b, make([]byte, int(p.PadCnt)+ICRCLen)...)
}

// sample is a packet of op whose fields differ from each other. Fields that op does not
// have are 0.
func sample(op Opcode, payload string) *Packet {
	p := &Packet{
		Header: Header{
			Opcode: op, Solicited: true, AckReq: true, PadCnt: uint8(Pad(len(payload))), PKey: 0x8765, DestQP: 0xabcdef, PSN: 0xfedcba,
			QKey: 0x80010203, SrcQP: 0x040506,
			VA: 0x1112131415161718, RKey: 0x191a1b1c, DMALen: 0x1d1e1f20,
			SwapDt: 0x2122232425262728, CmpDt: 0x292a2b2c2d2e2f30,
			Syndrome: 0x62, MSN: 0x313233, OrigRemDt: 0x3435363738393a3b, ImmDt: 0x3c3d3e3f,
		},
		Payload: []byte(payload),
	}
	clearUnused(&p.Header)
	return p
}

// clearUnused sets the fields that the opcode does not have to 0.
func clearUnused(h *Header) {
	has := h.Opcode.Info().Headers
	if has&HasDETH == 0 {
		h.QKey, h.SrcQP = 0, 0
	}
	if has&(HasRETH|HasAtomicETH) == 0 {
		h.VA, h.RKey = 0, 0
	}
	if has&HasRETH == 0 {
		h.DMALen = 0
	}
	if has&HasAtomicETH == 0 {
		h.SwapDt, h.CmpDt = 0, 0
	}
	if has&HasAETH == 0 {
		h.Syndrome, h.MSN = 0, 0
	}
	if has&HasAtomicAckETH == 0 {
		h.OrigRemDt = 0
	}
	if has&(HasImm|HasIETH) == 0 {
		h.ImmDt = 0
	}
}

// payloads are the lengths that an opcode is tried with.
func payloads(op Opcode) []int {
	if op.Info().Payload {
		return []int{0, 1, 2, 3, 4, 5, 1024}
	}
	return []int{0}
}

func someData(n int) string {
	return string(randomBytes(rand.New(rand.NewPCG(uint64(n), 1)), n))
}

// TestHeaderGolden holds the bytes of each opcode, without and with a payload.
func TestHeaderGolden(t *testing.T) {
	const (
		bth       = "8765" + "00abcdef" + "80fedcba"
		deth      = "80010203" + "00040506"
		reth      = "1112131415161718" + "191a1b1c" + "1d1e1f20"
		atomicETH = "1112131415161718" + "191a1b1c" + "2122232425262728" + "292a2b2c2d2e2f30"
		aeth      = "62" + "313233"
		old       = "3435363738393a3b"
		immDt     = "3c3d3e3f"
		hello     = "68656c6c6f" + "000000"
	)
	golden := []struct {
		op      Opcode
		payload string
		want    string
	}{
		{SendFirst, "", "00c0" + bth},
		{SendFirst, "hello", "00f0" + bth + hello},
		{SendMiddle, "", "01c0" + bth},
		{SendMiddle, "hello", "01f0" + bth + hello},
		{SendLast, "", "02c0" + bth},
		{SendLast, "hello", "02f0" + bth + hello},
		{SendLastImm, "", "03c0" + bth + immDt},
		{SendLastImm, "hello", "03f0" + bth + immDt + hello},
		{SendOnly, "", "04c0" + bth},
		{SendOnly, "hello", "04f0" + bth + hello},
		{SendOnlyImm, "", "05c0" + bth + immDt},
		{SendOnlyImm, "hello", "05f0" + bth + immDt + hello},
		{WriteFirst, "", "06c0" + bth + reth},
		{WriteFirst, "hello", "06f0" + bth + reth + hello},
		{WriteMiddle, "", "07c0" + bth},
		{WriteMiddle, "hello", "07f0" + bth + hello},
		{WriteLast, "", "08c0" + bth},
		{WriteLast, "hello", "08f0" + bth + hello},
		{WriteLastImm, "", "09c0" + bth + immDt},
		{WriteLastImm, "hello", "09f0" + bth + immDt + hello},
		{WriteOnly, "", "0ac0" + bth + reth},
		{WriteOnly, "hello", "0af0" + bth + reth + hello},
		{WriteOnlyImm, "", "0bc0" + bth + reth + immDt},
		{WriteOnlyImm, "hello", "0bf0" + bth + reth + immDt + hello},
		{ReadRequest, "", "0cc0" + bth + reth},
		{ReadResponseFirst, "", "0dc0" + bth + aeth},
		{ReadResponseFirst, "hello", "0df0" + bth + aeth + hello},
		{ReadResponseMiddle, "", "0ec0" + bth},
		{ReadResponseMiddle, "hello", "0ef0" + bth + hello},
		{ReadResponseLast, "", "0fc0" + bth + aeth},
		{ReadResponseLast, "hello", "0ff0" + bth + aeth + hello},
		{ReadResponseOnly, "", "10c0" + bth + aeth},
		{ReadResponseOnly, "hello", "10f0" + bth + aeth + hello},
		{Acknowledge, "", "11c0" + bth + aeth},
		{AtomicAcknowledge, "", "12c0" + bth + aeth + old},
		{CompareSwap, "", "13c0" + bth + atomicETH},
		{FetchAdd, "", "14c0" + bth + atomicETH},
		{SendLastInv, "", "16c0" + bth + immDt},
		{SendLastInv, "hello", "16f0" + bth + immDt + hello},
		{SendOnlyInv, "", "17c0" + bth + immDt},
		{SendOnlyInv, "hello", "17f0" + bth + immDt + hello},
		{UC + SendFirst, "", "20c0" + bth},
		{UC + SendFirst, "hello", "20f0" + bth + hello},
		{UC + SendMiddle, "", "21c0" + bth},
		{UC + SendMiddle, "hello", "21f0" + bth + hello},
		{UC + SendLast, "", "22c0" + bth},
		{UC + SendLast, "hello", "22f0" + bth + hello},
		{UC + SendLastImm, "", "23c0" + bth + immDt},
		{UC + SendLastImm, "hello", "23f0" + bth + immDt + hello},
		{UC + SendOnly, "", "24c0" + bth},
		{UC + SendOnly, "hello", "24f0" + bth + hello},
		{UC + SendOnlyImm, "", "25c0" + bth + immDt},
		{UC + SendOnlyImm, "hello", "25f0" + bth + immDt + hello},
		{UC + WriteFirst, "", "26c0" + bth + reth},
		{UC + WriteFirst, "hello", "26f0" + bth + reth + hello},
		{UC + WriteMiddle, "", "27c0" + bth},
		{UC + WriteMiddle, "hello", "27f0" + bth + hello},
		{UC + WriteLast, "", "28c0" + bth},
		{UC + WriteLast, "hello", "28f0" + bth + hello},
		{UC + WriteLastImm, "", "29c0" + bth + immDt},
		{UC + WriteLastImm, "hello", "29f0" + bth + immDt + hello},
		{UC + WriteOnly, "", "2ac0" + bth + reth},
		{UC + WriteOnly, "hello", "2af0" + bth + reth + hello},
		{UC + WriteOnlyImm, "", "2bc0" + bth + reth + immDt},
		{UC + WriteOnlyImm, "hello", "2bf0" + bth + reth + immDt + hello},
		{UDSendOnly, "", "64c0" + bth + deth},
		{UDSendOnly, "hello", "64f0" + bth + deth + hello},
		{UDSendOnlyImm, "", "65c0" + bth + deth + immDt},
		{UDSendOnlyImm, "hello", "65f0" + bth + deth + immDt + hello},
		{CNP, "", "81c0" + bth},
		{CNP, "hello", "81f0" + bth + hello},
	}
	seen := map[Opcode]bool{}
	for _, g := range golden {
		seen[g.op] = true
		p := sample(g.op, g.payload)
		require.Equal(t, g.want+"00000000", hexOf(build(p)), g.op.String())
		assert.Equal(t, p.Len(), len(p.Append(nil)), g.op.String())
		b, err := hex.DecodeString(g.want)
		require.NoError(t, err)
		var h Header
		payload, f := h.Parse(b)
		require.Equal(t, FaultNone, f, g.op.String())
		require.Equal(t, p.Header, h, g.op.String())
		require.Equal(t, g.payload, string(payload), g.op.String())
	}
	assert.Len(t, seen, len(opcodeRows))
}

func TestBTH(t *testing.T) {
	h := BTH(make([]byte, BTHLen))
	h.Put(&BTHFields{Opcode: SendOnly, DestQP: 0xff123456, PSN: 0xff654321})
	assert.Equal(t, "0440"+"0000"+"00123456"+"00654321", hexOf(h), "numbers have 24 bits")
	h.Put(&BTHFields{Opcode: SendOnly, Solicited: true, AckReq: true, PadCnt: 3, PKey: 0x8001, DestQP: 0x123456, PSN: 0xabcdef})
	assert.Equal(t, "04f0"+"8001"+"00123456"+"80abcdef", hexOf(h))
	for _, v := range []byte{0, 0x80, 0x40, 0xff} { // congestion bits
		h[4] = v
		assert.Equal(t, verbs.QPN(0x123456), h.DestQP())
	}
}

func TestParseReturnsWhatWasBuilt(t *testing.T) {
	for _, r := range opcodeRows {
		t.Run(r.name, func(t *testing.T) {
			for _, n := range payloads(r.op) {
				want := sample(r.op, someData(n))
				b := build(want)
				binary.LittleEndian.PutUint32(b[len(b)-ICRCLen:], 0x01020304)
				p, f := Parse(b)
				require.Equal(t, FaultNone, f, "%d bytes", n)
				require.Equal(t, *want, p)
			}
		})
	}
}

// TestAppend: Append keeps what precedes the header, whether b has room or not.
func TestAppend(t *testing.T) {
	for _, r := range opcodeRows {
		want := append([]byte("before"), build(sample(r.op, ""))[:r.len]...)
		for _, room := range []int{6, 7, 6 + MaxHeaderLen, 1000} {
			b := append(make([]byte, 0, room), "before"...)
			require.Equal(t, want, sample(r.op, "").Append(b), "%s in %d bytes", r.name, room)
		}
	}
}

// A packet that was cut off is short, or has odd padding, or is a packet with
// less data: then the ICRC tells.
func TestParseTruncated(t *testing.T) {
	for _, r := range opcodeRows {
		t.Run(r.name, func(t *testing.T) {
			prefix := prefixOf(&flow4)
			for _, n := range payloads(r.op) {
				c := sample(r.op, someData(n))
				b := build(c)
				prefix.Seal(b, 0)
				for l := range len(b) {
					_, f := Parse(b[:l:l])
					data := l - int(r.len) - ICRCLen
					switch {
					case data < int(c.PadCnt):
						require.Equal(t, FaultShort, f, "%d of %d bytes", l, len(b))
					case data&3 != 0:
						require.Equal(t, FaultPad, f, "%d of %d bytes", l, len(b))
					default:
						require.Equal(t, FaultNone, f, "%d of %d bytes", l, len(b))
						id, ok := prefix.Check(b[:l], 0) // by chance another identification fits one packet in 65536
						require.False(t, ok && id == 0, "%d of %d bytes", l, len(b))
					}
				}
			}
		})
	}
}

func TestParseFaults(t *testing.T) {
	send := func(change func(b []byte)) []byte {
		b := build(sample(SendOnly, "four"))
		change(b)
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		want Fault
	}{
		"nothing":           {nil, FaultShort},
		"a reserved opcode": {send(func(b []byte) { b[0] = 0x15 }), FaultOpcode},
		"another version":   {send(func(b []byte) { b[1] |= 1 }), FaultVersion},
		"more padding than data": {
			append(build(sample(SendOnly, ""))[:1:1], append([]byte{3 << 4}, build(sample(SendOnly, ""))[2:]...)...), FaultShort,
		},
		"data of odd length":         {append(build(sample(SendOnly, "four")), 0), FaultPad},
		"data in an acknowledgement": {append(build(sample(Acknowledge, "")), 0, 0, 0, 0), FaultPayload},
		"data in a read request":     {append(build(sample(ReadRequest, "")), 0, 0, 0, 0), FaultPayload},
		"data in an atomic":          {append(build(sample(FetchAdd, "")), 0, 0, 0, 0), FaultPayload},
	} {
		p, f := Parse(c.b)
		assert.Equal(t, c.want, f, name)
		assert.Equal(t, Packet{}, p, name)
	}
	assert.Equal(t, []string{"none", "short", "opcode", "version", "padding", "payload", "fault?"}, []string{
		FaultNone.String(), FaultShort.String(), FaultOpcode.String(), FaultVersion.String(),
		FaultPad.String(), FaultPayload.String(), numFaults.String(),
	})
}

// reserved clears the bits that mean nothing, or nothing that Put writes.
func reserved(b []byte) []byte {
	b = bytes.Clone(b)
	b[1] |= 0x40 // MigReq
	b[4] = 0     // congestion
	b[8] &= bthAckReq
	if Opcode(b[0]).Info().Headers&HasDETH != 0 {
		b[BTHLen+4] = 0
	}
	return b
}

// FuzzParse: Parse never panics, and a packet that it accepts is built again as it was.
func FuzzParse(f *testing.F) {
	for _, r := range opcodeRows {
		f.Add(build(sample(r.op, someData(payloads(r.op)[len(payloads(r.op))/2]))))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, fault := Parse(b)
		if fault != FaultNone {
			require.Less(t, fault, numFaults)
			return
		}
		again := build(&p)
		copy(again[len(again)-ICRCLen-int(p.PadCnt):], b[len(b)-ICRCLen-int(p.PadCnt):])
		require.Equal(t, reserved(b), again)
	})
}

// FuzzHeader: Parse returns the header that Append wrote.
func FuzzHeader(f *testing.F) {
	for _, r := range opcodeRows {
		f.Add(uint8(r.op), true, false, uint32(17), uint32(1), uint64(1<<40), uint64(3), uint32(5), uint32(7), []byte("data"))
	}
	f.Fuzz(func(t *testing.T, op uint8, se, ackReq bool, dest, psn uint32, va, more uint64, key, imm uint32, payload []byte) {
		info := Opcode(op).Info()
		if info.Kind == KindNone {
			return
		}
		if !info.Payload {
			payload = []byte{}
		}
		want := Packet{
			Header: Header{
				Opcode: Opcode(op), Solicited: se, AckReq: ackReq, PadCnt: uint8(Pad(len(payload))), PKey: uint16(key),
				DestQP: verbs.QPN(dest & mask24), PSN: verbs.PSN(psn & mask24), QKey: key, SrcQP: verbs.QPN(imm & mask24),
				VA: va, RKey: key, DMALen: imm, SwapDt: more, CmpDt: ^more, Syndrome: Syndrome(key), MSN: imm & mask24,
				OrigRemDt: more, ImmDt: imm,
			},
			Payload: payload,
		}
		clearUnused(&want.Header)
		p, fault := Parse(build(&want))
		require.Equal(t, FaultNone, fault)
		require.Equal(t, want, p)
	})
}

func FuzzSolveID(f *testing.F) {
	f.Add([]byte("a packet of some bytes"), uint16(0x50ac), uint16(0), uint16(50597))
	f.Add(make([]byte, BTHLen), uint16(0xffff), uint16(127), uint16(0))
	f.Fuzz(func(t *testing.T, covered []byte, id, index, port uint16) {
		if len(covered) < BTHLen || len(covered) > 65000 {
			return
		}
		p := NewPrefix(netip.AddrPortFrom(flow4.Src.Addr(), port), flow4.Dst)
		b := append(bytes.Clone(covered), 0, 0, 0, 0)
		p.Seal(b, id)
		got, ok := SolveID(p.ICRC(covered, 0), binary.LittleEndian.Uint32(b[len(covered):]), len(covered))
		require.True(t, ok)
		require.Equal(t, id, got)
		got, ok = p.Check(b, index)
		require.True(t, ok)
		require.Equal(t, id, got)
	})
}
