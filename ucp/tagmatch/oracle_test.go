package tagmatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// naive is the second implementation: slices in order of posting and arrival.
type naive struct {
	posted  []entry
	arrived []entry
}

type entry struct {
	id        uint32
	tag, mask uint64
}

func (n *naive) match(tag uint64) uint32 {
	i := slices.IndexFunc(n.posted, func(e entry) bool { return (e.tag^tag)&e.mask == 0 })
	if i < 0 {
		return 0
	}
	id := n.posted[i].id
	n.posted = slices.Delete(n.posted, i, i+1)
	return id
}

func (n *naive) take(tag, mask uint64) uint32 {
	i := slices.IndexFunc(n.arrived, func(e entry) bool { return (e.tag^tag)&mask == 0 })
	if i < 0 {
		return 0
	}
	id := n.arrived[i].id
	n.arrived = slices.Delete(n.arrived, i, i+1)
	return id
}

// pair drives both implementations and compares every answer.
type pair struct {
	t    testing.TB
	n    naive
	p    Posted
	a    Unexpected
	free []uint32 // receive numbers not in use
	top  uint32
}

// op does one operation chosen by three bytes.
func (x *pair) op(kind, tagBits, maskBits byte) {
	tag := uint64(tagBits&7) | uint64(tagBits>>3&1)<<63
	mask := ^uint64(0)
	switch maskBits & 3 {
	case 1:
		mask = 0
	case 2:
		mask = ^uint64(1)
	}
	switch kind % 8 {
	case 0, 1, 2:
		x.post(tag, mask)
	case 3, 4, 5:
		x.send(tag)
	case 6:
		x.remove(int(maskBits))
	default:
		x.withdraw(int(maskBits))
	}
	require.Equal(x.t, len(x.n.posted), x.p.Len())
	require.Equal(x.t, len(x.n.arrived), x.a.Len())
}

func (x *pair) post(tag, mask uint64) {
	got := x.a.Match(tag, mask)
	require.Equal(x.t, x.n.take(tag, mask), got)
	if got != 0 {
		x.a.Free(got)
		return
	}
	id := x.top + 1
	if k := len(x.free); k > 0 {
		id, x.free = x.free[k-1], x.free[:k-1]
	} else {
		x.top++
	}
	require.False(x.t, x.p.Has(id))
	x.p.Add(id, tag, mask)
	require.True(x.t, x.p.Has(id))
	x.n.posted = append(x.n.posted, entry{id, tag, mask})
}

func (x *pair) send(tag uint64) {
	got := x.p.Match(tag)
	require.Equal(x.t, x.n.match(tag), got)
	if got != 0 {
		x.free = append(x.free, got)
		return
	}
	id := x.a.Add(tag)
	require.Equal(x.t, tag, x.a.Tag(id))
	x.n.arrived = append(x.n.arrived, entry{id: id, tag: tag})
}

func (x *pair) remove(pick int) {
	if len(x.n.posted) == 0 {
		require.False(x.t, x.p.Remove(x.top+1))
		return
	}
	i := pick % len(x.n.posted)
	id := x.n.posted[i].id
	require.True(x.t, x.p.Remove(id))
	require.False(x.t, x.p.Remove(id))
	x.n.posted = slices.Delete(x.n.posted, i, i+1)
	x.free = append(x.free, id)
}

func (x *pair) withdraw(pick int) {
	if len(x.n.arrived) == 0 {
		return
	}
	i := pick % len(x.n.arrived)
	id := x.n.arrived[i].id
	x.a.Remove(id)
	x.a.Free(id)
	x.n.arrived = slices.Delete(x.n.arrived, i, i+1)
}

func TestAgainstNaive(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			x := &pair{t: t}
			// Phases that favour posting or sending fill the queues.
			for range 40 {
				favour := byte(r.IntN(8))
				for range 50 {
					kind := byte(r.IntN(8))
					if r.IntN(3) == 0 {
						kind = favour
					}
					x.op(kind, byte(r.Uint32()), byte(r.Uint32()))
				}
			}
		})
	}
}

// TestRuns posts windows of equal receives, longer than a run may be, and now and then another one, or removes one.
func TestRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	x := &pair{t: t}
	inRuns, inIndex := 0, 0
	for range 300 {
		tag, mask := uint64(r.IntN(2)), ^uint64(r.IntN(2))
		for range r.IntN(2 * len(x.p.run)) {
			x.post(tag, mask)
		}
		switch r.IntN(8) {
		case 0:
			x.post(^tag, mask)
		case 1:
			x.remove(r.IntN(1000))
		}
		require.Equal(t, len(x.n.posted), x.p.Len())
		for _, e := range x.n.posted {
			got, m := x.p.Pattern(e.id)
			require.Equal(t, e.tag, got)
			require.Equal(t, e.mask, m)
		}
		if x.p.usesIndex() {
			inIndex++
		} else if x.p.Len() > 1 {
			inRuns++
		}
		for range r.IntN(2 * len(x.p.run)) {
			x.send(tag)
		}
		if r.IntN(2) == 0 {
			for len(x.n.posted) > 0 {
				x.send(x.n.posted[0].tag)
			}
		}
	}
	require.Greater(t, inRuns, 20)
	require.Greater(t, inIndex, 20)
}

// Many distinct tags: the table doubles several times.
func TestManyTags(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	x := &pair{t: t}
	tags := make([]uint64, 700)
	for i := range tags {
		tags[i] = r.Uint64()
	}
	for range 4000 {
		tag := tags[r.IntN(len(tags))]
		switch r.IntN(4) {
		case 0:
			x.send(tag)
		case 1, 2:
			x.post(tag, ^uint64(0))
		default:
			x.remove(r.IntN(1000))
		}
	}
	require.Greater(t, len(x.p.idx.table), 1<<startBits)
}

func FuzzAgainstNaive(f *testing.F) {
	f.Add([]byte{0, 1, 0, 3, 1, 0, 0, 1, 1, 3, 9, 2, 6, 0, 0})
	f.Add([]byte{0, 0, 1, 0, 1, 0, 3, 1, 0, 3, 2, 0, 3, 3, 0, 7, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		x := &pair{t: t}
		for ; len(data) >= 3; data = data[3:] {
			x.op(data[0], data[1], data[2])
		}
	})
}
