package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What waited for the end of a fence, and found no room at the transport then, goes
// out before a flush behind it ends, and before what follows another fence.
func TestWhatAFenceHeldKeepsItsPlace(t *testing.T) {
	for name, after := range map[string]func(p *swPair) (ended func() bool){
		"flush": func(p *swPair) func() bool { return p.e.Flush().Done },
		"fence": func(p *swPair) func() bool {
			p.e.Fence()
			n := p.m.Load64(8) + 1
			p.k.PutUint64(n, 8)
			return func() bool { return p.m.Load64(8) == n }
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTwoLanePair(t)
			buf := make([]byte, 1000)
			for range 3 {
				p.word(0).Add(1)
				p.e.Fence()
				require.Equal(t, 1, p.a.t.fences)
				sends := make([]Request, 1000)
				for i := range sends {
					sends[i] = p.e.TagSend(buf, 7)
				}
				p.until(after(p))
				late := 0
				for _, r := range sends {
					if !r.Done() {
						late++
					}
				}
				require.Zero(t, late, "sends that were overtaken")
			}
			p.must(p.e.Flush())
			p.rested()
		})
	}
}

// A fence is before what goes by a lane that is opened after it, too.
func TestFenceBeforeALaneIsOpened(t *testing.T) {
	p := newTwoLanePair(t)
	require.NoError(t, p.k.Close())
	p.must(p.e.Flush())
	require.Len(t, p.e.Info().Lanes, 1)
	buf := make([]byte, 1000)
	sends := make([]Request, 1000)
	for i := range sends {
		sends[i] = p.e.TagSend(buf, 7)
	}
	p.e.Fence()
	k, err := p.e.UnpackKey(p.m.Key())
	require.NoError(t, err)
	k.PutUint64(1, 8)
	p.until(func() bool { return p.m.Load64(8) == 1 })
	for _, r := range sends {
		require.True(t, r.Done(), "the put came before messages before the fence")
	}
	p.must(p.e.Flush())
	p.rested()
}
