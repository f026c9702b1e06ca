package soft

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestOpenUDP: a device on the loopback interface shows its address and port.
func TestOpenUDP(t *testing.T) {
	lo := netip.MustParseAddr("127.0.0.1")
	p := New(Config{Link: LinkUDP, Addr: lo})
	infos, err := p.Devices()
	require.NoError(t, err)
	require.Len(t, infos, 1)
	var lids []uint16
	for range 2 {
		c, err := p.Open(infos[0])
		require.NoError(t, err)
		closeAtEnd(t, c)
		g, err := c.GID(1, 0)
		require.NoError(t, err)
		assert.Equal(t, lo, g.Addr())
		a, err := c.Port(1)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, a.LID, uint16(0x8000))
		assert.Less(t, a.LID, uint16(0xc000))
		assert.Equal(t, []verbs.MTU{verbs.MTU4096, verbs.MTU20480}, []verbs.MTU{a.ActiveMTU, a.LongMTU})
		lids = append(lids, a.LID)
		pd, err := c.AllocPD()
		require.NoError(t, err)
		closeAtEnd(t, pd)
		_, err = pd.CreateAH(verbs.AHAttr{DGID: g, Port: 1})
		refused(t, err, ucs.ErrInvalid, "4791") // answers would not come back
		h, err := pd.CreateAH(verbs.AHAttr{DGID: g, DLID: a.LID, Port: 1})
		require.NoError(t, err)
		closeAtEnd(t, h)
	}
	assert.NotEqual(t, lids[0], lids[1])
}
