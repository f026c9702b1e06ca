package ucp

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/self"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs/soft"
)

// Protocols names for each length what happens to it: the ranges of each
// operation follow each other without a gap, up to no limit, and change with the
// thresholds and with what the transport and the key have.
func TestProtocols(t *testing.T) {
	over := map[string][]uct.Component{"rc": poor(soft.Config{})[:1], "ud": poor(soft.Config{})[1:], "self": append(poor(soft.Config{})[:1], self.Component())}
	for _, c := range []struct {
		transport, setting, op, want string
	}{
		{"self", "", "tag_send", "0 egr/short 8193 egr/multi 65537 rndv"},
		{"self", "UCX_RNDV_THRESH=1000", "tag_send", "0 egr/short 1001 rndv"},
		{"self", "UCX_RNDV_THRESH=inf", "tag_send", "0 egr/short 8193 egr/multi"},
		{"self", "UCX_RNDV_THRESH=0", "tag_send", "0 egr/short 1 rndv"},
		{"self", "", "tag_send_sync", "0 egr/short 57 egr/bcopy 8185 rndv"},
		{"self", "UCX_RNDV_THRESH=inf", "tag_send_sync", "0 egr/short 57 egr/bcopy 8185 rndv"},
		{"self", "UCX_RNDV_THRESH=0", "tag_send_sync", "0 egr/short 1 rndv"},
		{"self", "", "put", "0 short"},
		{"self", "", "get", "0 short"},
		{"rc", "", "tag_send", "0 egr/short 49 egr/bcopy 8177 egr/multi 65537 rndv"},
		{"rc", "UCX_RNDV_THRESH=8k", "am_send", "0 egr/short 49 egr/bcopy 8177 egr/multi 8193 rndv"},
		{"rc", "", "put", "0 short 65 bcopy 16384 zcopy"},
		{"rc", "UCX_ZCOPY_THRESH=inf", "put", "0 short 65 bcopy"},
		{"rc", "UCX_ZCOPY_THRESH=0", "put", "0 short 65 zcopy"},
		{"rc", "", "get", "0 bcopy 16384 zcopy"},
		{"ud", "", "put", "0 am"},
		{"ud", "", "get", "0 am"},
	} {
		t.Run(strings.Join([]string{c.transport, c.setting, c.op}, " "), func(t *testing.T) {
			var env []string
			if c.setting != "" {
				env = append(env, c.setting)
			}
			p := newIdlePairOver(t, over[c.transport], 64, env...)
			e := p.e
			k := p.k
			if c.transport == "self" {
				var err error
				e, err = p.a.NewEndpoint(p.a.Address(), EndpointConfig{})
				require.NoError(t, err)
				k, err = e.UnpackKey(p.m.Key())
				require.NoError(t, err)
			}
			var got []string
			next := uint64(0)
			for _, r := range e.Protocols(k) {
				require.True(t, strings.HasPrefix(r.Lane, c.transport+"/"), r.Lane)
				if r.Op == c.op {
					require.Equal(t, next, r.Min)
					got, next = append(got, fmt.Sprint(r.Min, " ", r.Protocol)), r.Max+1
				}
			}
			require.Zero(t, next, "the last range has no limit: %x", uint64(math.MaxUint64))
			require.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}

func TestProtocolsOfNothing(t *testing.T) {
	p := newIdlePairOver(t, crowded(9), 64)
	for _, r := range p.e.Protocols(nil) {
		require.NotContains(t, []string{"put", "get"}, r.Op)
	}
	require.Empty(t, Endpoint{}.Protocols(nil))
	idle, err := p.a.NewEndpoint(p.b.Address(), EndpointConfig{})
	require.NoError(t, err)
	require.Empty(t, idle.Protocols(nil), "not connected")
	require.NoError(t, p.k.Close())
	require.Equal(t, p.e.Protocols(nil), p.e.Protocols(p.k))
}

// What Protocols says holds: a message or transfer of the lengths at which a range begins and ends
// is counted as what its protocol counts.
func TestProtocolsHold(t *testing.T) {
	p := newIdlePairOver(t, poor(soft.Config{})[:1], 1<<17, "UCX_RNDV_THRESH=10000")
	require.NoError(t, p.b.HandleAM(1, func(*AM) {}))
	counts := map[string]int{"egr/multi": cntFragmented, "rndv": cntRndvSent, "zcopy": cntZcopy}
	count := func() (all [3]uint64) {
		for i, name := range []string{"egr/multi", "rndv", "zcopy"} {
			all[i] = p.a.t.count.Value(counts[name])
		}
		return all
	}
	buf := make([]byte, 1<<17)
	for _, r := range p.e.Protocols(p.k) {
		for _, n := range []uint64{max(r.Min, 1), min(r.Max, uint64(len(buf)))} {
			before := count()
			b := buf[:n]
			switch r.Op {
			case "tag_send", "tag_send_sync":
				got := p.b.TagRecv(make([]byte, n), 5, ^Tag(0))
				if r.Op == "tag_send" {
					p.must(p.e.TagSend(b, 5))
				} else {
					p.must(p.e.TagSendSync(b, 5))
				}
				p.until(got.Done)
			case "am_send":
				p.must(p.e.AMSend(1, nil, b))
			case "put":
				p.must(p.k.Put(b, 0))
			case "get":
				p.must(p.k.Get(b, 0))
			}
			p.must(p.e.Flush())
			after := count()
			for i, name := range []string{"egr/multi", "rndv", "zcopy"} {
				require.Equal(t, r.Protocol == name, after[i] > before[i], "%s of %d bytes, %s: counted as %s?", r.Op, n, r.Protocol, name)
			}
		}
	}
}
