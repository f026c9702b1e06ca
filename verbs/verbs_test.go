package verbs

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// contains reports whether name stands in a list of names.
func contains(list, name string) bool {
	for s := range strings.SplitSeq(list, "|") {
		if s == name {
			return true
		}
	}
	return false
}

func TestPSN(t *testing.T) {
	const last = PSN(1<<24 - 1)
	for _, c := range []struct {
		p    PSN
		n    int
		want PSN
	}{
		{0, 1, 1},
		{last, 1, 0},
		{0, -1, last},
		{0xfffff0, 0x20, 0x10},
		{0x10, -0x20, 0xfffff0},
		{5, 1 << 24, 5},
		{5, -(1 << 24), 5},
		{7, 0, 7},
	} {
		assert.Equal(t, c.want, c.p.Add(c.n), "%#x + %d", c.p, c.n)
	}
	for _, c := range []struct {
		p, q PSN
		want int
	}{
		{1, 0, 1},
		{0, 1, -1},
		{0, last, 1},
		{last, 0, -1},
		{0x10, 0xfffff0, 0x20},
		{0xfffff0, 0x10, -0x20},
		{3, 3, 0},
		{1<<23 - 1, 0, 1<<23 - 1},
		{0, 1<<23 - 1, 1 - 1<<23},
		{1 << 23, 0, -1 << 23},
	} {
		assert.Equal(t, c.want, c.p.Diff(c.q), "%#x - %#x", c.p, c.q)
		assert.Equal(t, c.want < 0, c.p.Before(c.q), "%#x before %#x", c.p, c.q)
	}
	for p := PSN(0xffff00); p != 0x100; p = p.Add(1) {
		for n := -300; n <= 300; n += 7 {
			require.Equal(t, n, p.Add(n).Diff(p))
		}
	}
}

func TestMTU(t *testing.T) {
	for m, n := range map[MTU]int{0: 0, MTU256: 256, MTU512: 512, MTU1024: 1024, MTU2048: 2048, MTU4096: 4096, MTU20480: 20480, 7: 0, 255: 0} {
		assert.Equal(t, n, m.Bytes())
	}
}

func TestGID(t *testing.T) {
	for _, s := range []string{"10.1.2.3", "fe80::1", "fd00:676f:7563:7800::1"} {
		assert.Equal(t, s, GIDOf(netip.MustParseAddr(s)).Addr().String())
	}
	assert.Equal(t, GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, GIDOf(netip.MustParseAddr("10.0.0.1")))
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		v    interface{ String() string }
		want string
	}{
		{RC, "RC"},
		{UD, "UD"},
		{QPType(9), "qp type 9"},
		{StateReset, "RESET"},
		{StateErr, "ERR"},
		{QPState(7), "qp state 7"},
		{MTU4096, "4096"},
		{MTU20480, "20480"},
		{MTU(7), "mtu 7"},
		{LocalWrite | RemoteRead, "LOCAL_WRITE|REMOTE_READ"},
		{RelaxedOrdering, "RELAXED_ORDERING"},
		{FlushPersistent, "FLUSH_PERSISTENT"},
		{Access(0), "0x0"},
		{RemoteWrite | 1<<30, "REMOTE_WRITE|0x40000000"},
		{OpWrite, "RDMA_WRITE"},
		{OpSendInv, "SEND_WITH_INV"},
		{Opcode(10), "opcode 10"},
		{SendFence | SendInline, "FENCE|INLINE"},
		{WCGRH | WCWithInv, "GRH|WITH_INV"},
		{WCSend, "SEND"},
		{WCRecv, "RECV"},
		{WCRecvImm, "RECV_RDMA_WITH_IMM"},
		{WCOpcode(99), "completion opcode 99"},
		{WCSuccess, "success"},
		{WCFlushErr, "work request flushed error"},
		{WCRetryExcErr, "transport retry counter exceeded"},
		{WCRNRRetryExcErr, "RNR retry counter exceeded"},
		{WCGeneralErr, "general error"},
		{WCStatus(22), "completion status 22"},
		{EventCQErr, "CQ error"},
		{EventQPLastWQEReached, "last WQE reached"},
		{EventWQFatal, "WQ fatal"},
		{EventType(20), "event 20"},
		{PortActive, "active"},
		{PortState(6), "port state 6"},
		{AtomicGlobal, "GLOB"},
		{LinkEthernet, "ETHERNET"},
		{AttrState, "STATE"},
		{AttrDestQPN | AttrPeerFeatures, "DEST_QPN|PEER_FEATURES"},
		{AttrMask(1 << 30), "0x40000000"},
	} {
		assert.Equal(t, c.want, c.v.String())
	}
	for s := range numWCStatus {
		assert.NotEmpty(t, s.String())
	}
}

// TestFlat: work requests and completions hold no pointers, and their size is
// known.
func TestFlat(t *testing.T) {
	for v, size := range map[any]uintptr{SendWR{}: 184, RecvWR{}: 80, WC{}: 40, SGE{}: 16} {
		typ := reflect.TypeOf(v)
		assert.Equal(t, size, typ.Size(), typ.Name())
		assert.False(t, hasPointer(typ), typ.Name())
	}
}

func hasPointer(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		for f := range t.Fields() {
			if hasPointer(f.Type) {
				return true
			}
		}
		return false
	case reflect.Array:
		return hasPointer(t.Elem())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return false
	default:
		return true
	}
}

// TestAbilitiesLacking: what an object does not have is one answer.
func TestAbilitiesLacking(t *testing.T) {
	_, err := AllocMW(nil, MWType2)
	for name, err := range map[string]error{
		"window": err, "reregister": Reregister(nil, nil, nil, MRConfig{}), "attach": AttachMulticast(nil, GID{}),
		"detach": DetachMulticast(nil, GID{}), "bind": BindWindow(nil, 1, 0, nil, MWBind{}), "moderate": Moderate(nil, 1, time.Second),
	} {
		assert.ErrorIs(t, err, ucs.ErrUnsupported, name)
	}
}

// hearer is a queue pair with an ability.
type hearer struct {
	QP
	groups []GID
}

func (h *hearer) AttachMulticast(g GID) error { h.groups = append(h.groups, g); return nil }
func (h *hearer) DetachMulticast(GID) error   { h.groups = nil; return nil }

func TestAbilitiesThere(t *testing.T) {
	h := &hearer{}
	require.NoError(t, AttachMulticast(h, GID{1}))
	require.Equal(t, []GID{{1}}, h.groups)
	require.NoError(t, DetachMulticast(h, GID{1}))
	require.Empty(t, h.groups)
}
