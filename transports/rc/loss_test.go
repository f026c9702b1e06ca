package rc

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// faulty gives in-process devices whose links lose, double, reorder and corrupt.
func faulty(faults soft.Faults) nic.Providers {
	sw := soft.NewSwitch()
	return func(_ *config.Set, log *zap.Logger) []verbs.Provider {
		return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkInproc, Switch: sw, Faults: &faults, Log: log})}
	}
}

// TestLoss: through connecting, sending both ways, sleeping, waking and closing, all
// messages arrive once and in order, and no endpoint fails. There are a million of
// them, in the long form ten.
func TestLoss(t *testing.T) {
	few, many := uint64(300), uint64(17_000)
	switch {
	case race.Enabled:
		many = few
	case os.Getenv("GOUCX_TEST_LONG") != "":
		few, many = 10_000, 10*many
	}
	for _, percent := range []float64{0.1, 1, 5} {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			p := percent / 100
			c := Component(faulty(soft.Faults{Seed: 7, Loss: p, Duplicate: p, Reorder: p, Corrupt: p}))
			set := settingsOf(t, "UCX_RC_TIMEOUT=200ms", "UCX_RC_CONNECT_RETRY=1ms", "UCX_RC_MAX_PAIRS=1")
			ends := []*end{newEndWith(t, c, 1, set), newEndWith(t, c, 2, set), newEndWith(t, c, 3, set)}
			most := many
			if percent > 1 {
				most = few // each loss takes a probe
			}
			for round := range 5 {
				lossRound(t, ends, round, most)
			}
			until(t, func() bool { return ends[0].alone() && ends[1].alone() && ends[2].alone() }, ends...)
			for _, e := range ends {
				for _, f := range e.failures {
					require.NoError(t, f.Err)
				}
			}
		})
	}
}

// lossRound has each end send most messages to each other, and close.
func lossRound(t *testing.T, ends []*end, round int, most uint64) {
	type flow struct {
		ep        uct.Endpoint
		sent, got uint64
	}
	flows := make([]flow, len(ends)*len(ends))
	wrong := 0
	for i, e := range ends {
		e.onMessage = func(d *uct.Desc, p []byte) {
			f := &flows[binary.LittleEndian.Uint64(p)*uint64(len(ends))+uint64(i)]
			if d.Header != f.got || d.Len != 8 {
				wrong++
			}
			f.got++
		}
		for k, to := range ends {
			if i != k {
				ep, err := e.NewEndpoint(to.address())
				require.NoError(t, err)
				flows[i*len(ends)+k].ep = ep
			}
		}
	}
	until(t, func() bool {
		done := true
		for i := range flows {
			f := &flows[i]
			if f.ep == nil {
				continue
			}
			for range 8 {
				if f.sent == most || f.ep.AMUint64(1, f.sent, uint64(i/len(ends))) != ucs.OK {
					break
				}
				f.sent++
			}
			done = done && f.got == most
		}
		return done || wrong > 0
	}, ends...)
	require.Zero(t, wrong, "round %d: out of order, twice or damaged", round)
	for i := range flows {
		if flows[i].ep != nil {
			flows[i].ep.Close()
		}
	}
}
