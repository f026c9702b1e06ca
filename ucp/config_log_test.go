package ucp

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// The lanes of an endpoint configuration are logged once per worker, and again
// with another number when a lane fails over. The log of level debug has the
// ranking and the reasons.
func TestConfigurationIsLogged(t *testing.T) {
	p := newIdlePairOver(t, crowded(2), 64)
	core, logs := observer.New(zap.DebugLevel)
	p.x.log = zap.New(core)
	for range 2 {
		_, err := p.a.NewEndpoint(p.b.Address(), EndpointConfig{Eager: true})
		require.NoError(t, err)
	}
	info, debug := []string{}, []string{}
	for _, e := range logs.TakeAll() {
		if e.Level == zap.DebugLevel {
			debug = append(debug, e.Message)
		} else {
			info = append(info, e.Message)
		}
	}
	require.Equal(t, []string{"ep_cfg[0]: tag(rc/inproc:1) rma(rc/inproc:1) amo(rc/inproc:1) am(rc/inproc:1)"}, info)
	peer := "endpoint to worker " + shortID(p.b.t.id) + ": "
	require.Contains(t, debug, peer+"ep_cfg[0]")
	require.Contains(t, debug, peer+"not used: ud/inproc:1: atomics: has no atomics")
	require.Regexp(t, peer+`lanes for messages, by estimated time of a small message: rc/inproc:1 \d+ ns, ud/inproc:1 \d+ ns`, strings.Join(debug, "\n"))

	_, err := p.e.UnpackKey(p.m.Key())
	require.NoError(t, err)
	debug = debug[:0]
	for _, e := range logs.TakeAll() {
		debug = append(debug, e.Message)
	}
	peer = "key of worker " + shortID(p.b.t.id) + ": "
	require.Contains(t, debug, peer+"lane for put and get: rc/inproc:1")
	require.Contains(t, debug, peer+"lane for atomics: rc/inproc:1")

	p.must(p.e.TagSend([]byte("x"), 1))
	info = info[:0]
	for _, e := range logs.FilterLevelExact(zap.InfoLevel).All() {
		info = append(info, e.Message)
	}
	_, err = p.e.UnpackKey(p.m.Key())
	require.NoError(t, err)
	require.Equal(t, 1, logs.FilterMessage(peer+"lane for put and get: ud/inproc:1, emulated by messages").Len())
	require.Contains(t, info, "ep_cfg[1]: tag(ud/inproc:1) rma(ud/inproc:1) amo(ud/inproc:1) am(ud/inproc:1)")
}
