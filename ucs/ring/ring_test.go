package ring

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
)

var testLayout = Fit(16<<10, 128)

func newPair(t testing.TB, l Layout) (*Producer, *Consumer, []byte) {
	a := area(l.Size())
	require.NoError(t, Init(a, l))
	p, err := NewProducer(a, l)
	require.NoError(t, err)
	c, err := NewConsumer(a, l)
	require.NoError(t, err)
	return &p, &c, a
}

// send puts one message in, or reports that there is no room.
func send(p *Producer, id uint8, hdr uint64, b []byte) bool {
	if !p.Room() && p.Full() {
		return false
	}
	if len(b) <= InlineMax {
		c := p.Cell()
		c.SetHeader(hdr)
		c.SetPayload(b)
		c.Publish(First(p.Head(), id, len(b)))
		p.Advance()
		return true
	}
	r, ok := p.Reserve(len(b))
	if !ok {
		p.Refresh()
		if r, ok = p.Reserve(len(b)); !ok {
			return false
		}
	}
	copy(r, b)
	p.Commit(id, hdr, len(b), len(b)%2 == 0)
	return true
}

func fill(b []byte, seq uint64) {
	for i := range b {
		b[i] = byte(seq) + byte(i)
	}
}

func TestLayout(t *testing.T) {
	require.LessOrEqual(t, testLayout.Size(), 16<<10)
	require.NoError(t, testLayout.Check())
	require.Less(t, 2*testLayout.MaxBulk()+testLayout.Bulk/8, testLayout.Bulk+1, "a longest message fits wherever the last one ended")
	for name, l := range map[string]Layout{
		"no cells": {0, 1024}, "not a power of two": {24, 1024}, "too many": {1 << 17, 1024},
		"no bulk": {8, 0}, "odd bulk": {8, 1030}, "huge bulk": {8, 1 << 29},
	} {
		require.Error(t, l.Check(), name)
	}
	a := area(testLayout.Size())
	_, err := NewConsumer(a, testLayout)
	require.ErrorContains(t, err, "not a ring")
	require.NoError(t, Init(a, testLayout))
	_, err = NewConsumer(a, Layout{Cells: 64, Bulk: testLayout.Bulk})
	require.ErrorContains(t, err, "laid out for 128 cells")
	_, err = NewProducer(a[:100], testLayout)
	require.ErrorContains(t, err, "100 bytes")
	_, err = NewProducer(area(testLayout.Size() + 8)[8:], testLayout)
	require.ErrorContains(t, err, "aligned")
}

func TestFieldsOfTwoOwnersLieApart(t *testing.T) {
	require.Zero(t, offCellTail%128)
	require.Zero(t, offPolled%128)
	require.GreaterOrEqual(t, offPolled-offCellTail, 128)
	require.Zero(t, controlBytes%CellSize)
}

// TestRandomised sends messages of random sizes with random amounts of progress
// between and compares each with what was sent.
func TestRandomised(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	p, c, _ := newPair(t, testLayout)
	var sent, got uint64
	var lens []int
	buf := make([]byte, testLayout.MaxBulk())
	for range 200_000 {
		if rnd.IntN(2) == 0 {
			n := rnd.IntN(InlineMax + 1)
			if rnd.IntN(3) == 0 {
				n = rnd.IntN(testLayout.MaxBulk() + 1)
			}
			fill(buf[:n], sent)
			if send(p, uint8(sent%32), sent, buf[:n]) {
				lens = append(lens, n)
				sent++
			} else {
				require.NotEmpty(t, lens, "an empty ring refused %d bytes", n)
			}
			continue
		}
		for range rnd.IntN(8) {
			var m Message
			more, ok := c.Next(&m)
			require.True(t, ok)
			if !more {
				require.Empty(t, lens)
				break
			}
			require.Equal(t, got, m.Header)
			require.Equal(t, uint8(got%32), m.ID)
			require.Equal(t, lens[0], int(m.Len))
			fill(buf[:m.Len], got)
			require.Equal(t, buf[:m.Len], c.Data()[m.Off:][:m.Len])
			lens = lens[1:]
			got++
		}
		c.Release()
	}
	require.Greater(t, got, uint64(50_000))
}

// TestNoRoomIsTransient fills the ring with the longest messages, drains it,
// and finds room for one more whatever the position.
func TestNoRoomIsTransient(t *testing.T) {
	l := testLayout
	for first := 0; first <= l.MaxBulk(); first += CellSize {
		p, c, _ := newPair(t, l)
		buf := make([]byte, l.MaxBulk())
		require.True(t, send(p, 0, 0, buf[:first]))
		for range 50 {
			for send(p, 0, 0, buf) {
			}
			var m Message
			for {
				more, ok := c.Next(&m)
				require.True(t, ok)
				if !more {
					break
				}
			}
			c.Release()
			require.True(t, send(p, 0, 0, buf), "drained ring refused a message after %d bytes", first)
		}
	}
}

// TestTwoGoroutines is the race detector's test: both sides at once on the heap.
func TestTwoGoroutines(t *testing.T) {
	n := uint64(300_000)
	if testing.Short() || race.Enabled {
		n = 20_000
	}
	p, c, _ := newPair(t, testLayout)
	done := make(chan bool)
	go func() {
		defer close(done)
		buf := make([]byte, 600)
		for i := range n {
			b := buf[:8+i%592]
			fill(b, i)
			for !send(p, 1, i, b) {
				runtime.Gosched()
			}
		}
	}()
	want := make([]byte, 600)
	for i := uint64(0); i < n; {
		var m Message
		more, ok := c.Next(&m)
		require.True(t, ok)
		if !more {
			c.Release()
			runtime.Gosched()
			continue
		}
		b := want[:8+i%592]
		fill(b, i)
		if m.Header != i || !bytes.Equal(b, c.Data()[m.Off:][:m.Len]) { // reflection at every message takes most of the time
			require.Equal(t, i, m.Header)
			require.Equal(t, b, c.Data()[m.Off:][:m.Len])
		}
		i++
		if i%16 == 0 {
			c.Release()
		}
	}
	<-done
}

// TestPrefetch: a hint at every position, to the end of the cells and no further.
func TestPrefetch(t *testing.T) {
	p, c, _ := newPair(t, testLayout)
	for i := range 300 {
		require.True(t, send(p, 0, uint64(i), nil))
		c.Prefetch(16)
		var m Message
		more, ok := c.Next(&m)
		require.True(t, more && ok)
		require.Equal(t, uint64(i), m.Header)
		c.Release()
	}
}

func TestBlock(t *testing.T) {
	p, _, _ := newPair(t, testLayout)
	p.Block()
	require.False(t, p.Room())
	require.True(t, p.Refresh())
	require.False(t, p.Room(), "blocked whatever the consumer does")
	require.True(t, p.Full())
	p.Unblock()
	require.False(t, p.Room())
	require.True(t, p.Refresh())
	require.True(t, p.Room())
}

// TestFullLeavesUnreadCells: Full stores to the last word of free cells, which belongs to the payload of a longest message
// while the consumer has not read it.
func TestFullLeavesUnreadCells(t *testing.T) {
	p, c, _ := newPair(t, testLayout)
	var sent, received uint64
	payload := bytes.Repeat([]byte{0xa5}, InlineMax)
	take := func(n int) {
		for range n {
			var m Message
			more, ok := c.Next(&m)
			require.True(t, more && ok)
			require.Equal(t, received, m.Header)
			require.Equal(t, payload, c.Data()[m.Off:][:m.Len])
			received++
		}
		c.Release() // of a batch: what is published is no multiple of anything
	}
	for k := range 4 * testLayout.Cells {
		for send(p, 0, sent, payload) {
			sent++
		}
		require.Equal(t, p.free, p.head, "the ring is full")
		take(min(1+k%(testLayout.Cells-1), int(sent-received)))
	}
	take(int(sent - received))
	require.False(t, p.Full())
	require.LessOrEqual(t, p.limit-p.head, uint64(batchCells))
}

func TestWaitingProducerHearsOfEachMessage(t *testing.T) {
	p, c, _ := newPair(t, testLayout)
	var m Message
	send(p, 0, 0, nil)
	c.Next(&m)
	require.False(t, c.Release(), "publishing each message costs the producer a miss each")
	p.SetWaiting(true)
	send(p, 0, 0, make([]byte, 100))
	c.Next(&m)
	require.True(t, c.Release())
	require.True(t, p.Refresh())
	require.Equal(t, p.head+p.size, p.free)
	require.Equal(t, p.bulkHead, p.bulkSeen)
	p.SetWaiting(false)
	send(p, 0, 0, nil)
	c.Next(&m)
	require.False(t, c.Release())
}

// TestWaitingProducerIsWokenForAQuarter while messages are left, so that a sender that sleeps does not wake for a few cells.
func TestWaitingProducerIsWokenForAQuarter(t *testing.T) {
	p, c, _ := newPair(t, testLayout)
	var m Message
	for send(p, 0, 0, nil) {
	}
	p.SetWaiting(true)
	for i := 1; i <= testLayout.Cells-1; i++ {
		c.Next(&m)
		woke := c.Release()
		require.Equal(t, i%(testLayout.Cells/4) == 0 || i == testLayout.Cells-1, woke, "after %d messages", i)
	}
	require.True(t, p.Refresh())
	require.Equal(t, p.head+p.size, p.free)
}

func TestFitsAgreesWithReserve(t *testing.T) {
	p, _, _ := newPair(t, testLayout)
	for n := testLayout.MaxBulk(); n > InlineMax; n -= 100 {
		for p.Fits(n) {
			_, ok := p.Reserve(n)
			require.True(t, ok)
			p.Commit(0, 0, n, false)
		}
		_, ok := p.Reserve(n)
		require.False(t, ok)
	}
	require.True(t, p.Fits(InlineMax))
}

func TestCommitOfLess(t *testing.T) {
	p, c, _ := newPair(t, testLayout)
	for i := range 1000 {
		b, ok := p.Reserve(1000)
		require.True(t, ok)
		require.Len(t, b, 1000)
		b[0] = byte(i)
		p.Commit(3, 7, 1+i%64, false)
		var m Message
		more, ok := c.Next(&m)
		require.True(t, more && ok)
		require.Equal(t, byte(i), c.Data()[m.Off])
		require.Equal(t, uint32(1+i%64), m.Len)
		c.Release()
		require.True(t, p.Refresh())
	}
}

func TestGarbageFromThePeer(t *testing.T) {
	for name, spoil := range map[string]func(a []byte){
		"inline length": func(a []byte) { putFirst(a, First(1, 0, 49)) },
		"bulk offset":   func(a []byte) { putFirst(a, First(1, 0, 0)|flagBulk); putWord(a, 16, uint64(testLayout.Bulk+64)<<32) },
		"bulk length": func(a []byte) {
			putFirst(a, First(1, 0, 0)|flagBulk)
			putWord(a, 16, uint64(testLayout.Bulk)+1)
			putWord(a, 24, uint64(testLayout.Bulk)+1)
		},
		"bulk wraps": func(a []byte) { putFirst(a, First(1, 0, 0)|flagBulk); putWord(a, 16, 1<<63|1<<31) },
		"advance":    func(a []byte) { putFirst(a, First(1, 0, 0)|flagBulk); putWord(a, 24, 1<<40) },
		"advance below length": func(a []byte) {
			putFirst(a, First(1, 0, 0)|flagBulk)
			putWord(a, 16, 64)
			putWord(a, 24, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, c, a := newPair(t, testLayout)
			spoil(a)
			var m Message
			_, ok := c.Next(&m)
			require.False(t, ok)
		})
	}
	for name, spoil := range map[string]func(a []byte){
		"cell tail ahead":  func(a []byte) { binary.NativeEndian.PutUint64(a[offCellTail:], 3) },
		"cell tail behind": func(a []byte) { binary.NativeEndian.PutUint64(a[offCellTail:], 1<<63) },
		"bulk tail ahead":  func(a []byte) { binary.NativeEndian.PutUint64(a[offBulkTail:], 64) },
	} {
		t.Run(name, func(t *testing.T) {
			p, _, a := newPair(t, testLayout)
			spoil(a)
			require.False(t, p.Refresh())
		})
	}
}

func putFirst(a []byte, v uint64) { putWord(a, 0, v) }

// putWord writes a word of cell 1, where the first message lies.
func putWord(a []byte, off int, v uint64) {
	binary.NativeEndian.PutUint64(a[controlBytes+CellSize+off:], v)
}

// FuzzConsumer lets a peer write anything anywhere: no panic, and no message
// outside the area.
func FuzzConsumer(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint16(0))
	f.Add(binary.NativeEndian.AppendUint64(nil, First(1, 0, 8)), uint16(controlBytes+CellSize))
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		p, c, a := newPair(t, Layout{Cells: 8, Bulk: 1024})
		copy(a[int(at)%len(a):], b)
		for range 20 {
			var m Message
			more, ok := c.Next(&m)
			if !more || !ok {
				break
			}
			_ = c.Data()[m.Off:][:m.Len]
			c.Release()
		}
		p.Refresh()
		if r, ok := p.Reserve(100); ok {
			r[99] = 1
		}
	})
}

func TestGateAllocs(t *testing.T) {
	p, c, _ := newPair(t, testLayout)
	small, big := make([]byte, 8), make([]byte, 1024)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		var m Message
		if !send(p, 1, 2, small) || !send(p, 1, 2, big) {
			panic("no room")
		}
		c.Next(&m)
		c.Next(&m)
		c.Release()
	}))
}

func BenchmarkSendNext(b *testing.B) {
	for _, n := range []int{8, 48, 1024} {
		b.Run(map[int]string{8: "8B", 48: "48B", 1024: "1KB"}[n], func(b *testing.B) {
			p, c, _ := newPair(b, testLayout)
			buf := make([]byte, n)
			b.ReportAllocs()
			for b.Loop() {
				var m Message
				send(p, 1, 2, buf)
				c.Next(&m)
				c.Release()
			}
		})
	}
}
