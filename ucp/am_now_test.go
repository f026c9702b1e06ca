package ucp

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/shm"
	"github.com/goucx/goucx/uct"
)

// Over shm a receiver fetches long active messages before it runs their handlers: these see what they see of messages in
// fragments, in the order of posting.
func TestAMFetchedNow(t *testing.T) {
	p := newIdlePairOver(t, []uct.Component{shm.Component()}, 8)
	type got struct {
		header, data []byte
		rendezvous   bool
	}
	var all []got
	var retained []RetainedAM
	require.NoError(t, p.b.HandleAM(1, func(m *AM) {
		all = append(all, got{bytes.Clone(m.Header), bytes.Clone(m.Data), m.Rendezvous})
		if m.Len%3 == 0 && !m.Rendezvous {
			retained = append(retained, m.Retain())
		}
	}))
	lane := func() *lane { return &p.a.t.lanes[p.a.t.eps[p.a.t.endpoint(p.e)].lane] }
	p.must(p.e.Flush())
	ep := lane().transport().(uct.Exposer)
	if lane().maxHeapEager == lane().maxEager {
		t.Skip("this host permits no copies of all memory")
	}
	p.until(ep.FetchesNow)
	allocated, err := p.x.Allocate(64<<10, MemConfig{})
	require.NoError(t, err)
	heap := make([]byte, 64<<10)
	for i := range heap {
		heap[i] = byte(i>>8 ^ i)
	}
	copy(allocated.Bytes(), heap)
	var want []got
	var sends []Request
	before := p.a.t.count.Value(cntRndvSent)
	fetched, heapMax := uint64(0), int(lane().maxHeapEager)
	for round := range 3 {
		for _, n := range []int{8, 7000, 1, lane().maxBcopy, lane().maxBcopy + 1, heapMax, heapMax + 1, 40_000, 2, 64 << 10, 0} {
			for k, memory := range [][]byte{heap, allocated.Bytes()} {
				header := bytes.Repeat([]byte{byte(n)}, round*100)
				sends = append(sends, p.e.AMSend(1, header, memory[:n]))
				want = append(want, got{header, memory[:n], false})
				if n > []int{heapMax, int(lane().maxAllocEager)}[k] && n+len(header) > lane().maxBcopy {
					fetched++
				}
			}
		}
	}
	for _, r := range sends {
		p.must(r)
	}
	p.until(func() bool { return len(all) == len(want) })
	for i := range want {
		assert.True(t, bytes.Equal(want[i].header, all[i].header), "header of message %d", i)
		assert.True(t, bytes.Equal(want[i].data, all[i].data), "message %d, of %d bytes", i, len(want[i].data))
		assert.False(t, all[i].rendezvous)
	}
	assert.Equal(t, before+fetched, p.a.t.count.Value(cntRndvSent))
	require.NotEmpty(t, retained)
	for _, m := range retained {
		m.Release()
	}

	// What is forced to be eager is. Without a handler the message is dropped, as one in fragments.
	before = p.a.t.count.Value(cntRndvSent)
	p.must(p.e.AMSendWith(1, nil, heap[:40_000], Opts{Flags: ForceEager}))
	p.until(func() bool { return len(all) == len(want)+1 })
	assert.Equal(t, before, p.a.t.count.Value(cntRndvSent))
	p.must(p.e.AMSend(2, nil, heap[:40_000]))
	assert.Equal(t, before+1, p.a.t.count.Value(cntRndvSent))
}
