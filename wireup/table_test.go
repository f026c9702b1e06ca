package wireup

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/uct"
)

func TestTableCountsReferences(t *testing.T) {
	var table Table
	a := clusterAddress(t, nil, 1, 1)
	p, err := table.Add(a)
	require.NoError(t, err)
	q, err := table.Add(a)
	require.NoError(t, err)
	assert.Equal(t, p, q)
	assert.NotZero(t, p)
	assert.Equal(t, 1, table.Len())
	table.Release(p)
	found, ok := table.Find(testUUID('w', 1<<16|1))
	assert.True(t, ok)
	assert.Equal(t, p, found)
	table.Release(p)
	_, ok = table.Find(testUUID('w', 1<<16|1))
	assert.False(t, ok)
	assert.Zero(t, table.Len())
}

func TestTableRefusesAnotherAddressOfAWorker(t *testing.T) {
	var table Table
	p, err := table.Add(clusterAddress(t, nil, 1, 1))
	require.NoError(t, err)
	v := table.View(p)
	for name, change := range map[string]func(*View){
		"process": func(v *View) { v.Process[3]++ },
		"iface":   func(v *View) { v.Entries[1].Addr.Iface[0]++ },
		"context": func(v *View) { v.Context++ },
		"host":    func(v *View) { v.Host[3]++ },
		"entries": func(v *View) { v.Entries = v.Entries[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			w := table.View(p)
			change(&w)
			_, err := table.Add(encode(t, w))
			require.ErrorIs(t, err, ErrAddress)
			assert.ErrorContains(t, err, "another address")
			assert.Equal(t, v, table.View(p), "the first one stays")
		})
	}
}

func TestTableRefusesDamage(t *testing.T) {
	var table Table
	b := encode(t, golden)
	b[70]++
	_, err := table.Add(b)
	require.ErrorIs(t, err, ErrAddress)
	assert.Zero(t, table.Len())
}

func TestTableKeepsNoCallerBytes(t *testing.T) {
	var table Table
	b := encode(t, golden)
	p, err := table.Add(b)
	require.NoError(t, err)
	clear(b)
	v := table.View(p)
	assert.Equal(t, golden, v)
	clear(v.Entries[1].Addr.Device)
	clear(v.Entries[1].Addr.Iface)
	assert.Equal(t, golden, table.View(p))
}

// A random sequence of adds and releases does what a map would do, and does not
// grow what it reuses.
func TestTableAgainstMap(t *testing.T) {
	const hosts, procs = 20, 40
	rng := rand.New(rand.NewPCG(1, 2))
	var table Table
	type peer struct{ h, p int }
	refs, ids := map[peer]int{}, map[peer]PeerID{}
	for range 200_000 {
		k := peer{rng.IntN(hosts), rng.IntN(procs)}
		switch n := refs[k]; {
		case rng.IntN(3) == 0 && n < 5:
			id, err := table.Add(clusterAddress(t, nil, k.h, k.p))
			require.NoError(t, err)
			if n > 0 {
				require.Equal(t, ids[k], id)
			}
			ids[k] = id
			refs[k]++
		case n > 0:
			table.Release(ids[k])
			if refs[k]--; refs[k] == 0 {
				delete(refs, k)
			}
		}
	}
	require.Equal(t, len(refs), table.Len())
	for h := range hosts {
		for p := range procs {
			id, ok := table.Find(testUUID('w', h<<16|p))
			require.Equal(t, refs[peer{h, p}] > 0, ok)
			if ok {
				want, err := Parse(clusterAddress(t, nil, h, p))
				require.NoError(t, err)
				require.Equal(t, want, table.View(id))
				require.Equal(t, want.Worker, table.UUID(id))
			}
		}
	}
	assert.LessOrEqual(t, table.n, uint32(hosts*procs+1), "slots are reused")
	assert.LessOrEqual(t, len(table.templates), hosts, "shapes are reused")
	assert.Len(t, table.slab.chunks, 1, "records are reused")
}

func TestTableForgetsHosts(t *testing.T) {
	var table Table
	for h := range 100 {
		p, err := table.Add(clusterAddress(t, nil, h, 0))
		require.NoError(t, err)
		table.Release(p)
	}
	assert.Empty(t, table.numbers)
	assert.Len(t, table.templates, 1)
}

// A worker's UUID that stands in an iface part more than once, or at its end,
// comes back where it was.
func TestTableUUIDInIfacePart(t *testing.T) {
	w := string(golden.Worker[:])
	for name, iface := range map[string]string{
		"absent": "abc", "alone": w, "first": w + "x", "last": "x" + w, "twice": w + "-" + w, "empty": "",
	} {
		t.Run(name, func(t *testing.T) {
			v := golden
			v.Entries = []Entry{{Transport: 7, Addr: uct.Address{Device: []byte("d"), Iface: []byte(iface)}}}
			var table Table
			p, err := table.Add(encode(t, v))
			require.NoError(t, err)
			assert.Equal(t, v, table.View(p))
		})
	}
}

func TestTableAddAllocatesNothingForAKnownHost(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	var table Table
	addrs := make([][]byte, 2000)
	for i := range addrs {
		addrs[i] = clusterAddress(t, nil, 0, i)
	}
	for _, a := range addrs { // room for all, then none of them
		_, err := table.Add(a)
		require.NoError(t, err)
	}
	for p := range PeerID(len(addrs)) {
		table.Release(p + 1)
	}
	first, err := table.Add(addrs[0])
	require.NoError(t, err)
	require.NotZero(t, first)
	i := 1
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		_, _ = table.Add(addrs[i])
		i++
	}))
}

// What follows from the rest of an address is not stored, and comes back.
func TestTableLeavesOut(t *testing.T) {
	v := golden
	worker, half := string(v.Worker[:]), string(v.Process[8:])
	summed := func(s string) string {
		return string(binary.LittleEndian.AppendUint32([]byte(s), crc32.Checksum([]byte(s), castagnoli)))
	}
	stranger := v.Process
	stranger[15]++
	for name, tc := range map[string]struct {
		process uct.UUID
		iface   string
		stored  int // bytes, beside the UUIDs
		head    int // bytes of these
	}{
		"all of it":                  {v.Process, summed("a" + worker + "bc" + half + "def"), 6, 20},
		"nothing":                    {v.Process, "abcdef", 6, 20},
		"a sum alone":                {v.Process, summed("abcdef"), 6, 20},
		"a sum of nothing":           {v.Process, summed(""), 0, 20},
		"process before worker":      {v.Process, "a" + half + "b" + worker, 8 + 2, 20},
		"process alone":              {v.Process, "a" + half + "b", 2, 20},
		"a process that is no kin":   {stranger, summed("a" + worker + half), 9, 32},
		"a wrong sum":                {v.Process, worker + "abcd", 4, 20},
		"the process of no kin, too": {stranger, worker + string(stranger[8:]), 0, 32},
		"a worker cut short":         {v.Process, summed(worker[:14]), 14, 20},
	} {
		t.Run(name, func(t *testing.T) {
			w := v
			w.Process = tc.process
			w.Entries = []Entry{{Transport: 7, Addr: uct.Address{Device: []byte("d"), Iface: []byte(tc.iface)}}}
			var table Table
			p, err := table.Add(encode(t, w))
			require.NoError(t, err)
			assert.Equal(t, w, table.View(p))
			assert.Equal(t, tc.head+tc.stored, table.templates[table.at(p).template].perPeer)
			q, err := table.Add(encode(t, w))
			require.NoError(t, err)
			assert.Equal(t, p, q)
		})
	}
}
