package wire

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Packets that Linux's rxe sent or accepted.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name, packet string
		src, dst     string
		id           uint16
	}{
		{"send only", "0400ffff000000118000010068656c6c6f20736f667420726e696321daf5001c", "10.0.0.2:4791", "10.0.0.1:4791", 0},
		{"acknowledge", "1100ffff000000550024ad6a1f0000013fff11cc", "10.0.0.1:50597", "10.0.0.2:4791", 0x50ac},
	} {
		b := unhex(t, c.packet)
		p, f := Parse(b)
		if f != FaultNone {
			t.Fatal(c.name, f)
		}
		fl := NewPrefix(netip.MustParseAddrPort(c.src), netip.MustParseAddrPort(c.dst))
		if got := fl.ICRC(p.Covered(), c.id); got != p.ICRC() {
			t.Errorf("%s: %08x want %08x", c.name, got, p.ICRC())
		}
		id, ok := SolveID(fl.ICRC(p.Covered(), 0), p.ICRC(), len(p.Covered()))
		if !ok || id != c.id {
			t.Errorf("%s: id %04x %v", c.name, id, ok)
		}
	}
}

func TestSolve(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	fl := NewPrefix(netip.MustParseAddrPort("10.1.2.3:4791"), netip.MustParseAddrPort("10.1.2.4:49152"))
	wrong := 0
	for range 3000 {
		b := make([]byte, 16+4*r.IntN(1030))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		id := uint16(r.Uint32())
		fl.Seal(b, id)
		n := len(b) - 4
		got, ok := SolveID(fl.ICRC(b[:n], 0), binary.LittleEndian.Uint32(b[n:]), n)
		if !ok || got != id {
			t.Fatalf("%04x %04x %v", id, got, ok)
		}
		b[n-1] ^= 1
		if _, ok := SolveID(fl.ICRC(b[:n], 0), binary.LittleEndian.Uint32(b[n:]), n); ok {
			wrong++
		}
	}
	if wrong > 3 {
		t.Fatal(wrong)
	}
}

func TestCredits(t *testing.T) {
	for code, n := range []int{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, -1} {
		if Credits(uint8(code)) != n {
			t.Error(code, Credits(uint8(code)), n)
		}
	}
}
