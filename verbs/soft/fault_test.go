package soft

import (
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

func TestFaultsValidate(t *testing.T) {
	good := Faults{Loss: 1, Duplicate: 0.5, Delay: time.Second}
	assert.NoError(t, good.Validate())
	bad := Faults{Loss: -0.1, ReceiveLoss: -1, Duplicate: 1.1, Reorder: math.NaN(), Corrupt: 2, Delay: -1}
	err := bad.Validate()
	require.ErrorIs(t, err, ucs.ErrInvalid)
	for _, name := range []string{"Loss", "ReceiveLoss", "Duplicate", "Reorder", "Corrupt", "delay"} {
		assert.ErrorContains(t, err, name)
	}
}

// prefix is of the packets of these tests.
var prefix = wire.NewPrefix(netip.MustParseAddrPort("[fd00::1]:1"), netip.MustParseAddrPort("[fd00::2]:2"))

// sendOnly makes a packet with n bytes of payload.
func sendOnly(psn verbs.PSN, n int) []byte {
	h := wire.Header{Opcode: wire.SendOnly, PadCnt: uint8(wire.Pad(n)), PKey: 0xffff, DestQP: 7, AckReq: true, PSN: psn}
	b := h.Append(nil)
	b = append(b, make([]byte, wire.SendOnly.Info().PacketLen(n)-len(b))...)
	prefix.Seal(b, 0)
	return b
}

// fits reports whether the checksum of a packet of sendOnly does.
func fits(b []byte) bool {
	_, ok := prefix.Check(b, 0)
	return ok
}

// out is a packet that came out of a line.
type out struct {
	when ucs.Time
	psn  verbs.PSN // where ok
	dest int
	ok   bool // the ICRC fits
}

// drive puts count packets into a line, one a microsecond, and takes all that
// comes out when it is due.
func drive(f *Faults, salt uint64, count int, in bool) []out {
	l := newFaultInjector[int](f, in, salt)
	var outs []out
	var now ucs.Time
	drain := func() {
		for h, ok := l.take(now); ok; h, ok = l.take(now) {
			o := out{when: h.when, dest: h.dest, ok: fits(h.b)}
			if o.ok {
				o.psn = wire.BTH(h.b).PSN()
			}
			outs = append(outs, o)
			l.recycle(h)
		}
	}
	for i := range count {
		now = ucs.Time(i * 1000)
		b := sendOnly(verbs.PSN(i), i%5)
		l.put(i%3, b, now)
		drain()
	}
	for len(l.delayed) != 0 {
		now = l.delayed[0].when
		drain()
	}
	return outs
}

func psns(outs []out) []int {
	ns := make([]int, len(outs))
	for i, o := range outs {
		ns[i] = int(o.psn)
	}
	return ns
}

func first(n int) []int {
	ns := make([]int, n)
	for i := range ns {
		ns[i] = i
	}
	return ns
}

func TestFaultLineWithout(t *testing.T) {
	for i, o := range drive(&Faults{}, 0, 100, false) {
		require.Equal(t, out{ucs.Time(i * 1000), verbs.PSN(i), i % 3, true}, o)
	}
	delayed := drive(&Faults{Delay: 10 * time.Microsecond}, 0, 100, false)
	require.Equal(t, first(100), psns(delayed))
	for i, o := range delayed {
		require.Equal(t, ucs.Time(i*1000+10_000), o.when)
	}
}

// TestFaultLineFrequency counts each fault alone; the bounds are six standard
// deviations wide.
func TestFaultLineFrequency(t *testing.T) {
	const count, p = 20_000, 0.05
	const slack = 6 * 31
	lost := drive(&Faults{Loss: p}, 0, count, false)
	assert.InDelta(t, count*(1-p), len(lost), slack)
	assert.True(t, slices.IsSorted(psns(lost)))

	twice := drive(&Faults{Duplicate: p}, 0, count, false)
	assert.InDelta(t, count*(1+p), len(twice), slack)
	distinct := psns(twice)
	slices.Sort(distinct)
	assert.Equal(t, first(count), slices.Compact(distinct))

	late := drive(&Faults{Reorder: p, Jitter: 20 * time.Microsecond}, 0, count, false)
	assert.False(t, slices.IsSorted(psns(late)))
	held := 0
	for _, o := range late {
		behind := o.when - ucs.Time(o.psn)*1000
		require.True(t, behind >= 0 && behind < 20_000)
		if behind > 0 {
			held++
		}
	}
	assert.InDelta(t, count*p, held, slack)

	bad := 0
	for _, o := range drive(&Faults{Corrupt: p}, 0, count, false) {
		if !o.ok {
			bad++
		}
	}
	assert.InDelta(t, count*p, bad, slack)
}

// TestFaultLineSeed wants the same faults from the same seed, others from another
// seed or salt; and one fault does not move another.
func TestFaultLineSeed(t *testing.T) {
	all := Faults{Seed: 1, Loss: 0.1, Duplicate: 0.1, Reorder: 0.1}
	want := drive(&all, 1, 1000, false)
	assert.Equal(t, want, drive(&all, 1, 1000, false))
	assert.NotEqual(t, want, drive(&all, 2, 1000, false))
	other := all
	other.Seed = 2
	assert.NotEqual(t, want, drive(&other, 1, 1000, false))

	arrived := psns(want)
	slices.Sort(arrived)
	assert.Equal(t, slices.Compact(arrived), psns(drive(&Faults{Seed: 1, Loss: 0.1}, 1, 1000, false)))
}

// TestFaultLineHook says for each packet what becomes of it.
func TestFaultLineHook(t *testing.T) {
	var infos []PacketInfo
	f := Faults{Hook: func(p *PacketInfo) Verdict {
		assert.Equal(t, p.PSN, p.Packet.PSN)
		info := *p
		info.Packet = wire.Packet{} // valid during the call
		infos = append(infos, info)
		switch p.PSN {
		case 1:
			return Verdict{Drop: true, Duplicate: true}
		case 2:
			return Verdict{Duplicate: true, Corrupt: true}
		case 3:
			return Verdict{Delay: 1500 * time.Nanosecond}
		default:
			return Verdict{}
		}
	}}
	for _, in := range []bool{false, true} {
		infos = nil
		assert.Equal(t, []out{
			{0, 0, 0, true},
			{2000, 0, 2, false},
			{2000, 2, 2, true},
			{4000, 4, 1, true},
			{4500, 3, 0, true},
			{5000, 5, 2, true},
		}, drive(&f, 0, 6, in))
		require.Len(t, infos, 6)
		assert.Equal(t, PacketInfo{Op: wire.SendOnly, Dest: 7, PSN: 3, Len: 3, AckReq: true, Received: in}, infos[3])
	}
}

// TestFaultLineReceived leaves what was received to the hook alone.
func TestFaultLineReceived(t *testing.T) {
	f := Faults{Loss: 1, Delay: time.Second}
	assert.Equal(t, first(10), psns(drive(&f, 0, 10, true)))
	assert.Empty(t, drive(&f, 0, 10, false))
}

// TestFaultLineSyndrome shows an acknowledgement to the hook; bytes that are no
// packet pass it by.
func TestFaultLineSyndrome(t *testing.T) {
	var got []wire.Syndrome
	l := newFaultInjector[int](&Faults{Hook: func(p *PacketInfo) Verdict {
		got = append(got, p.Syndrome)
		return Verdict{}
	}}, false, 0)
	h := wire.Header{Opcode: wire.Acknowledge, PKey: 0xffff, DestQP: 7, PSN: 1, Syndrome: wire.NakSequence, MSN: 5}
	l.put(0, append(h.Append(nil), 0, 0, 0, 0), 0)
	l.put(0, []byte("none"), 0)
	assert.Equal(t, []wire.Syndrome{wire.NakSequence}, got)
	for range 2 {
		_, ok := l.take(0)
		assert.True(t, ok)
	}
}

func TestFlipBits(t *testing.T) {
	var rng splitMix64
	for range 10_000 {
		b := sendOnly(3, 9)
		whole := slices.Clone(b)
		flipBits(b, rng.next())
		flipped := 0
		for i := range b {
			flipped += bits.OnesCount8(b[i] ^ whole[i])
		}
		require.True(t, flipped >= 1 && flipped <= 3)
		require.Equal(t, whole[uncovered], b[uncovered])
		require.False(t, fits(b), "the checksum lets %d bits pass", flipped)
	}
}

// TestFaultLineAllocs: a line reuses its memory.
func TestFaultLineAllocs(t *testing.T) {
	l := newFaultInjector[int](&Faults{Duplicate: 1, Delay: time.Microsecond}, false, 0)
	b := sendOnly(0, 64)
	var now ucs.Time
	run := func() {
		now += 500
		l.put(0, b, now)
		for h, ok := l.take(now); ok; h, ok = l.take(now) {
			l.recycle(h)
		}
	}
	for range 1000 {
		run()
	}
	assert.Zero(t, testing.AllocsPerRun(1000, run))
}
