package arq

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHead(t *testing.T) {
	for _, c := range []struct {
		name string
		h    Header
		hex  string
	}{
		{
			"message with an acknowledgement",
			Header{A: wordA(Data, 9, 0x123456, 0xCAFEBABE) | ackReqBit, B: 0xFF | 0x654321<<8 | 0x01020304<<32, C: 0x1122334455667788},
			"69563412bebafeca" + "ff21436504030201" + "8877665544332211",
		},
		{"end", Header{A: wordA(End, EndAll, 5, 1)}, "8105000001000000" + "00000000000000000000000000000000"},
		{"bye", Header{A: wordA(Control, Close, 0, 0), B: 7 << 8}, "c7000000000000000007000000000000" + "0000000000000000"},
	} {
		b := make([]byte, HeaderLen)
		c.h.Put(b)
		require.Equal(t, c.hex, hex.EncodeToString(b), c.name)
		got, ok := Parse(b)
		require.True(t, ok)
		require.Equal(t, c.h, got)
		for n := range b {
			_, ok = Parse(b[:n])
			require.False(t, ok, "cut to %d", n)
		}
	}
	h := Header{A: wordA(Data, 9, 0x123456, 0xCAFEBABE) | ackReqBit, B: 0xFF | 0x654321<<8 | 0x01020304<<32}
	assert.Equal(t, Data, h.Kind())
	assert.EqualValues(t, 9, h.ID())
	assert.True(t, h.AckReq())
	assert.Equal(t, Flow(0x123456), h.To())
	assert.Equal(t, Seq(0xCAFEBABE), h.Seq())
	assert.Equal(t, Flow(0x654321), h.AckOf())
	assert.EqualValues(t, 255, h.Window())
	assert.Equal(t, Seq(0x01020304), h.Ack())
}

func TestSelective(t *testing.T) {
	for _, s := range []Selective{{1}, {0, 1}, {5, 0, 1 << 63}, {1, 2, 3, 4}} {
		h := Header{C: s[0]}
		b := s.Append(nil)
		require.Equal(t, s, ParseSelective(&h, b))
		for n := range b {
			got := ParseSelective(&h, b[:n])
			require.Equal(t, s[0], got[0], "cut to %d", n)
		}
	}
	assert.Empty(t, (&Selective{7}).Append(nil))
}

func TestTable(t *testing.T) {
	var tab table[int]
	a, b := new(int), new(int)
	f, g := tab.add(a), tab.add(b)
	require.Same(t, a, tab.at(f))
	require.Same(t, b, tab.at(g))
	require.Nil(t, tab.at(0))
	require.Nil(t, tab.at(g+1))
	tab.remove(f)
	tab.remove(f)
	require.Nil(t, tab.at(f))
	seen := map[Flow]bool{f: true}
	for range 4000 {
		h := tab.add(a)
		require.False(t, seen[h], "used again too soon")
		seen[h] = true
		tab.remove(h)
	}
	require.Less(t, len(tab.items), 100)
	n := 0
	for _, i := range tab.items {
		if i.value != nil {
			n++
		}
	}
	require.Equal(t, 1, n)
}

// FuzzTake feeds whatever arrives to a host with flows in both directions.
func FuzzTake(f *testing.F) {
	f.Add([]byte("0123456789012345678901234567890123456789"))
	f.Fuzz(func(t *testing.T, p []byte) {
		w := newWorld(t, 1, rough(0))
		a, b := w.host(), w.host()
		a.openFor(b, 50)
		b.openFor(a, 50)
		w.net.RunUntil(w.net.Now() + 50_000)
		now := w.net.Now()
		for len(p) > 0 {
			n := min(len(p), 1+int(p[0])%64)
			b := make([]byte, max(n, HeaderLen)+8)
			copy(b, p[:n])
			head, ok := Parse(b)
			p = p[n:]
			if !ok || head.Kind() == Data || head.Kind() == End {
				continue // numbered ones of another make are the peer's own affair
			}
			a.take(w.hosts[1].at, b, now)
			a.run()
		}
	})
}
