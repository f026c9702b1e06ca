package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

// content is all that a packet can say; what its opcode has no header for is 0.
type content struct {
	bth                       BTHFields
	qkey                      uint32
	src                       verbs.QPN
	addr, swap, compare, old  uint64
	rkey, length, msn, immInv uint32
	syndrome                  Syndrome
	payload                   string
}

// build makes a packet, with an ICRC of zeros.
func build(c *content) []byte {
	info := c.bth.Opcode.Info()
	b := make([]byte, info.PacketLen(len(c.payload)))
	BTH(b).Put(&c.bth)
	rest := b[BTHLen:]
	next := func(n int) []byte {
		h := rest[:n]
		rest = rest[n:]
		return h
	}
	if info.Headers&HasDETH != 0 {
		DETH(next(DETHLen)).Put(c.qkey, c.src)
	}
	if info.Headers&HasRETH != 0 {
		RETH(next(RETHLen)).Put(c.addr, c.rkey, c.length)
	}
	if info.Headers&HasAtomicETH != 0 {
		AtomicETH(next(AtomicETHLen)).Put(c.addr, c.rkey, c.swap, c.compare)
	}
	if info.Headers&HasAETH != 0 {
		AETH(next(AETHLen)).Put(c.syndrome, c.msn)
	}
	if info.Headers&HasAtomicAckETH != 0 {
		AtomicAckETH(next(AtomicAckETHLen)).Put(c.old)
	}
	if info.Headers&(HasImm|HasIETH) != 0 {
		binary.BigEndian.PutUint32(next(ImmLen), c.immInv)
	}
	copy(rest, c.payload)
	return b
}

// read gives what a parsed packet says.
func read(p Packet) *content {
	h, has := p.BTH(), p.Info().Headers
	c := &content{
		bth: BTHFields{
			Opcode: h.Opcode(), Solicited: h.Solicited(), AckReq: h.AckReq(), Pad: uint8(h.Pad()),
			PKey: h.PKey(), Dest: h.Dest(), PSN: h.PSN(),
		},
		payload: string(p.Payload()),
	}
	if has&HasDETH != 0 {
		c.qkey, c.src = p.DETH().QKey(), p.DETH().Src()
	}
	if has&HasRETH != 0 {
		c.addr, c.rkey, c.length = p.RETH().Addr(), p.RETH().RKey(), p.RETH().Len()
	}
	if has&HasAtomicETH != 0 {
		a := p.AtomicETH()
		c.addr, c.rkey, c.swap, c.compare = a.Addr(), a.RKey(), a.SwapAdd(), a.Compare()
	}
	if has&HasAETH != 0 {
		c.syndrome, c.msn = p.AETH().Syndrome(), p.AETH().MSN()
	}
	if has&HasAtomicAckETH != 0 {
		c.old = p.AtomicAckETH().Old()
	}
	if has&(HasImm|HasIETH) != 0 {
		c.immInv = p.Imm()
	}
	return c
}

// sample is a packet of op whose fields differ from each other.
func sample(op Opcode, payload string) *content {
	info := op.Info()
	c := &content{
		bth: BTHFields{
			Opcode: op, Solicited: true, AckReq: true, Pad: uint8(Pad(len(payload))),
			PKey: 0x8765, Dest: 0xabcdef, PSN: 0xfedcba,
		},
		payload: payload,
	}
	if info.Headers&HasDETH != 0 {
		c.qkey, c.src = 0x80010203, 0x040506
	}
	if info.Headers&(HasRETH|HasAtomicETH) != 0 {
		c.addr, c.rkey = 0x1112131415161718, 0x191a1b1c
	}
	if info.Headers&HasRETH != 0 {
		c.length = 0x1d1e1f20
	}
	if info.Headers&HasAtomicETH != 0 {
		c.swap, c.compare = 0x2122232425262728, 0x292a2b2c2d2e2f30
	}
	if info.Headers&HasAETH != 0 {
		c.syndrome, c.msn = 0x62, 0x313233
	}
	if info.Headers&HasAtomicAckETH != 0 {
		c.old = 0x3435363738393a3b
	}
	if info.Headers&(HasImm|HasIETH) != 0 {
		c.immInv = 0x3c3d3e3f
	}
	return c
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

// Where each header's fields lie.
func TestHeadersGolden(t *testing.T) {
	const bth = "8765" + "00abcdef" + "80fedcba"
	for op, want := range map[Opcode]string{
		SendFirst:         "00c0" + bth,
		SendOnlyImm:       "05c0" + bth + "3c3d3e3f",
		SendOnlyInv:       "17c0" + bth + "3c3d3e3f",
		WriteOnly:         "0ac0" + bth + "1112131415161718" + "191a1b1c" + "1d1e1f20",
		WriteOnlyImm:      "0bc0" + bth + "1112131415161718" + "191a1b1c" + "1d1e1f20" + "3c3d3e3f",
		ReadResponseOnly:  "10c0" + bth + "62313233",
		AtomicAcknowledge: "12c0" + bth + "62313233" + "3435363738393a3b",
		CompareSwap:       "13c0" + bth + "1112131415161718" + "191a1b1c" + "2122232425262728" + "292a2b2c2d2e2f30",
		UDSendOnly:        "64c0" + bth + "80010203" + "00040506",
		UDSendOnlyImm:     "65c0" + bth + "80010203" + "00040506" + "3c3d3e3f",
	} {
		assert.Equal(t, want+"00000000", hexOf(build(sample(op, ""))), op.String())
	}
	assert.Equal(t, "00f0"+bth+"41000000"+"00000000", hexOf(build(sample(SendFirst, "A"))))
}

func TestBTH(t *testing.T) {
	h := BTH(make([]byte, BTHLen))
	h.Put(&BTHFields{Opcode: SendOnly, Dest: 0xff123456, PSN: 0xff654321})
	assert.Equal(t, "0440"+"0000"+"00123456"+"00654321", hexOf(h), "numbers have 24 bits")
	h.SetPSN(0xabcdef)
	h.SetAckReq()
	assert.Equal(t, "0440"+"0000"+"00123456"+"80abcdef", hexOf(h))
	assert.True(t, h.AckReq())
	for v, want := range map[byte][2]bool{0: {false, false}, 0x80: {true, false}, 0x40: {false, true}, 0xff: {true, true}} {
		h[4] = v
		assert.Equal(t, want, [2]bool{h.FECN(), h.BECN()})
		assert.Equal(t, verbs.QPN(0x123456), h.Dest())
	}
}

func TestParseGivesWhatWasBuilt(t *testing.T) {
	for _, r := range opcodeRows {
		t.Run(r.name, func(t *testing.T) {
			for _, n := range payloads(r.op) {
				c := sample(r.op, someData(n))
				b := build(c)
				binary.LittleEndian.PutUint32(b[len(b)-ICRCLen:], 0x01020304)
				p, f := Parse(b)
				require.Equal(t, FaultNone, f, "%d bytes", n)
				require.Equal(t, c, read(p))
				require.Equal(t, uint32(0x01020304), p.ICRC())
				require.Equal(t, b[:len(b)-ICRCLen], p.Covered())
			}
		})
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
					case data < int(c.bth.Pad):
						require.Equal(t, FaultShort, f, "%d of %d bytes", l, len(b))
					case data&3 != 0:
						require.Equal(t, FaultPad, f, "%d of %d bytes", l, len(b))
					default:
						require.Equal(t, FaultNone, f, "%d of %d bytes", l, len(b))
						_, ok := prefix.Check(b[:l], 0)
						require.False(t, ok, "%d of %d bytes", l, len(b))
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
		c := read(p)
		again := build(c)
		copy(again[len(again)-ICRCLen-int(c.bth.Pad):], b[len(b)-ICRCLen-int(c.bth.Pad):])
		require.Equal(t, reserved(b), again)
	})
}

func FuzzBuild(f *testing.F) {
	for _, r := range opcodeRows {
		f.Add(uint8(r.op), true, false, uint32(17), uint32(1), uint64(1<<40), uint64(3), uint32(5), uint32(7), []byte("data"))
	}
	f.Fuzz(func(t *testing.T, op uint8, se, ackReq bool, dest, psn uint32, addr, more uint64, key, imm uint32, payload []byte) {
		info := Opcode(op).Info()
		if info.Kind == KindNone {
			return
		}
		if !info.Payload {
			payload = nil
		}
		c := sample(Opcode(op), string(payload))
		c.bth.Solicited, c.bth.AckReq, c.bth.PKey = se, ackReq, uint16(key)
		c.bth.Dest, c.bth.PSN = verbs.QPN(dest&mask24), verbs.PSN(psn&mask24)
		set := func(where any, v uint64) {
			switch w := where.(type) { // what the opcode lacks stays 0
			case *uint64:
				if *w != 0 {
					*w = v
				}
			case *uint32:
				if *w != 0 {
					*w = uint32(v)
				}
			}
		}
		set(&c.addr, addr)
		set(&c.swap, more)
		set(&c.compare, ^more)
		set(&c.old, more)
		set(&c.rkey, uint64(key))
		set(&c.qkey, uint64(key))
		set(&c.length, uint64(imm))
		set(&c.immInv, uint64(imm))
		p, fault := Parse(build(c))
		require.Equal(t, FaultNone, fault)
		require.Equal(t, c, read(p))
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
