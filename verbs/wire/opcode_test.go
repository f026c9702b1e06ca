package wire

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// How much data a packet may carry.
const (
	noData  = "none"
	fullMTU = "MTU"
	someMTU = "1..MTU"
	anyMTU  = "0..MTU"
)

// The specification's table 38, in the order of the codes.
var opcodeRows = []struct {
	op      Opcode
	code    uint8
	name    string
	kind    Kind
	headers Headers
	len     uint8
	data    string
	recv    bool
}{
	{SendFirst, 0x00, "SEND First", KindSend, 0, 12, fullMTU, false},
	{SendMiddle, 0x01, "SEND Middle", KindSend, 0, 12, fullMTU, false},
	{SendLast, 0x02, "SEND Last", KindSend, 0, 12, someMTU, true},
	{SendLastImm, 0x03, "SEND Last Immediate", KindSend, HasImm, 16, someMTU, true},
	{SendOnly, 0x04, "SEND Only", KindSend, 0, 12, anyMTU, true},
	{SendOnlyImm, 0x05, "SEND Only Immediate", KindSend, HasImm, 16, anyMTU, true},
	{WriteFirst, 0x06, "RDMA WRITE First", KindWrite, HasRETH, 28, fullMTU, false},
	{WriteMiddle, 0x07, "RDMA WRITE Middle", KindWrite, 0, 12, fullMTU, false},
	{WriteLast, 0x08, "RDMA WRITE Last", KindWrite, 0, 12, someMTU, false},
	{WriteLastImm, 0x09, "RDMA WRITE Last Immediate", KindWrite, HasImm, 16, someMTU, true},
	{WriteOnly, 0x0a, "RDMA WRITE Only", KindWrite, HasRETH, 28, anyMTU, false},
	{WriteOnlyImm, 0x0b, "RDMA WRITE Only Immediate", KindWrite, HasRETH | HasImm, 32, anyMTU, true},
	{ReadRequest, 0x0c, "RDMA READ Request", KindReadRequest, HasRETH, 28, noData, false},
	{ReadResponseFirst, 0x0d, "RDMA READ Response First", KindReadResponse, HasAETH, 16, fullMTU, false},
	{ReadResponseMiddle, 0x0e, "RDMA READ Response Middle", KindReadResponse, 0, 12, fullMTU, false},
	{ReadResponseLast, 0x0f, "RDMA READ Response Last", KindReadResponse, HasAETH, 16, someMTU, false},
	{ReadResponseOnly, 0x10, "RDMA READ Response Only", KindReadResponse, HasAETH, 16, anyMTU, false},
	{Acknowledge, 0x11, "Acknowledge", KindAck, HasAETH, 16, noData, false},
	{AtomicAcknowledge, 0x12, "Atomic Acknowledge", KindAck, HasAETH | HasAtomicAckETH, 24, noData, false},
	{CompareSwap, 0x13, "Compare and Swap", KindAtomic, HasAtomicETH, 40, noData, false},
	{FetchAdd, 0x14, "Fetch and Add", KindAtomic, HasAtomicETH, 40, noData, false},
	{SendLastInv, 0x16, "SEND Last Invalidate", KindSend, HasIETH, 16, someMTU, true},
	{SendOnlyInv, 0x17, "SEND Only Invalidate", KindSend, HasIETH, 16, anyMTU, true},
	{UC + SendFirst, 0x20, "UC SEND First", KindUnreliable, 0, 12, fullMTU, false},
	{UC + SendMiddle, 0x21, "UC SEND Middle", KindUnreliable, 0, 12, fullMTU, false},
	{UC + SendLast, 0x22, "UC SEND Last", KindUnreliable, 0, 12, someMTU, true},
	{UC + SendLastImm, 0x23, "UC SEND Last Immediate", KindUnreliable, HasImm, 16, someMTU, true},
	{UC + SendOnly, 0x24, "UC SEND Only", KindUnreliable, 0, 12, anyMTU, true},
	{UC + SendOnlyImm, 0x25, "UC SEND Only Immediate", KindUnreliable, HasImm, 16, anyMTU, true},
	{UC + WriteFirst, 0x26, "UC RDMA WRITE First", KindUnreliable, HasRETH, 28, fullMTU, false},
	{UC + WriteMiddle, 0x27, "UC RDMA WRITE Middle", KindUnreliable, 0, 12, fullMTU, false},
	{UC + WriteLast, 0x28, "UC RDMA WRITE Last", KindUnreliable, 0, 12, someMTU, false},
	{UC + WriteLastImm, 0x29, "UC RDMA WRITE Last Immediate", KindUnreliable, HasImm, 16, someMTU, true},
	{UC + WriteOnly, 0x2a, "UC RDMA WRITE Only", KindUnreliable, HasRETH, 28, anyMTU, false},
	{UC + WriteOnlyImm, 0x2b, "UC RDMA WRITE Only Immediate", KindUnreliable, HasRETH | HasImm, 32, anyMTU, true},
	{UDSendOnly, 0x64, "UD SEND Only", KindDatagram, HasDETH, 20, anyMTU, true},
	{UDSendOnlyImm, 0x65, "UD SEND Only Immediate", KindDatagram, HasDETH | HasImm, 24, anyMTU, true},
	{CNP, 0x81, "CNP", KindCNP, 0, 12, anyMTU, false},
}

func dataRule(i *Info) string {
	if !i.Payload {
		return noData
	}
	return map[Place]string{PlaceFirst: fullMTU, PlaceMiddle: fullMTU, PlaceLast: someMTU, PlaceOnly: anyMTU}[i.Place]
}

func TestOpcodes(t *testing.T) {
	known := map[Opcode]bool{}
	for _, r := range opcodeRows {
		t.Run(r.name, func(t *testing.T) {
			i := r.op.Info()
			assert.Equal(t, Opcode(r.code), r.op)
			assert.Equal(t, r.name, r.op.String())
			assert.Equal(t, r.kind, i.Kind)
			assert.Equal(t, r.headers, i.Headers)
			assert.Equal(t, r.len, i.Len)
			assert.Equal(t, r.data, dataRule(i))
			assert.Equal(t, r.recv, i.TakesRecv)
		})
		known[r.op] = true
	}
	for o := range 256 {
		if op := Opcode(o); !known[op] {
			require.Equal(t, Info{}, *op.Info(), "%#x", o)
			require.Equal(t, "reserved opcode", op.String())
		}
	}
}

func TestPlaces(t *testing.T) {
	for p, want := range map[Place][2]bool{
		PlaceOnly: {true, true}, PlaceFirst: {true, false}, PlaceMiddle: {false, false}, PlaceLast: {false, true},
	} {
		assert.Equal(t, want, [2]bool{p.Begins(), p.Ends()}, "place %d", p)
	}
}

func TestPacketLen(t *testing.T) {
	for n, want := range map[int]int{0: 16, 1: 20, 3: 20, 4: 20, 5: 24, 4096: 4112} {
		assert.Equal(t, want, SendOnly.Info().PacketLen(n), "%d bytes", n)
	}
	assert.Equal(t, 4128, WriteFirst.Info().PacketLen(4096))
}

func TestPKeysMatch(t *testing.T) {
	for _, c := range []struct {
		a, b uint16
		want bool
	}{
		{0xffff, 0xffff, true},
		{0xffff, 0x7fff, true},
		{0x7fff, 0xffff, true},
		{0x7fff, 0x7fff, false},
		{0x8001, 0x0001, true},
		{0x8001, 0x8002, false},
		{0x8000, 0x8000, false},
		{0, 0, false},
	} {
		assert.Equal(t, c.want, PKeysMatch(c.a, c.b), "%#x and %#x", c.a, c.b)
	}
}

// The document lists what the table holds.
func TestOpcodesDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/wire/roce.md")
	require.NoError(t, err)
	headers := []string{"DETH", "RETH", "AtomicETH", "AETH", "AtomicAckETH", "ImmDt", "IETH"}
	for _, r := range opcodeRows {
		var has []string
		for bit, name := range headers {
			if r.headers>>bit&1 != 0 {
				has = append(has, name)
			}
		}
		data := strings.TrimPrefix(r.data, noData)
		recv := map[bool]string{true: "yes"}[r.recv]
		row := fmt.Sprintf("| %02x | %s | %s | %s | %s |", r.code, r.name, strings.Join(has, ", "), data, recv)
		if r.op == CNP {
			row = "| 81 | CNP: there is congestion | | 16 bytes of zeros | |"
		}
		squeeze := strings.NewReplacer("|  |", "| |")
		require.Contains(t, string(doc), squeeze.Replace(squeeze.Replace(row)))
	}
}
