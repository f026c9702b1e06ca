package rc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// lateFlush is how long late devices withhold completions with an error.
const lateFlush = 300 * time.Microsecond

// late returns the devices of ps, whose completions with an error come late, as from hardware: the software RNIC adds
// them before Modify returns.
func late(ps nic.Providers) nic.Providers {
	return func(s *config.Set, log *zap.Logger) []verbs.Provider {
		var all []verbs.Provider
		for _, p := range ps(s, log) {
			all = append(all, lateProvider{p})
		}
		return all
	}
}

type lateProvider struct{ verbs.Provider }

func (p lateProvider) Open(d verbs.DeviceInfo) (verbs.Context, error) {
	c, err := p.Provider.Open(d)
	return lateContext{c}, err
}

type lateContext struct{ verbs.Context }

func (c lateContext) AllocPD() (verbs.PD, error) {
	p, err := c.Context.AllocPD()
	return latePD{p}, err
}

func (c lateContext) CreateCQ(conf verbs.CQConfig) (verbs.CQ, error) {
	if d, ok := conf.Domain.(latePD); ok {
		conf.Domain = d.PD
	}
	q, err := c.Context.CreateCQ(conf)
	return &lateCQ{CQ: q}, err
}

type latePD struct{ verbs.PD }

func (p latePD) Parent(td verbs.TD) (verbs.PD, error) {
	parent, err := p.PD.Parent(td)
	return latePD{parent}, err
}

func (p latePD) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	c.SendCQ, c.RecvCQ = c.SendCQ.(*lateCQ).CQ, c.RecvCQ.(*lateCQ).CQ
	return p.PD.CreateQP(c)
}

// lateCQ withholds what is behind the first completion with an error, too.
type lateCQ struct {
	verbs.CQ
	held []verbs.WC
	at   ucs.Time // when they may be polled
}

func (q *lateCQ) Poll(wcs []verbs.WC) int {
	if len(q.held) > 0 && ucs.Now() >= q.at {
		n := copy(wcs, q.held)
		q.held = q.held[n:]
		return n
	}
	n := q.CQ.Poll(wcs)
	for i := range max(n, 0) {
		if len(q.held) > 0 || wcs[i].Status != verbs.WCSuccess {
			if len(q.held) == 0 {
				q.at = ucs.Now().Add(lateFlush)
			}
			q.held = append(q.held, wcs[i:n]...)
			return i
		}
	}
	return n
}

// TestUnackedAtLateFlush: messages that a peer had not acknowledged when it closed its interface are not reported as
// acknowledged, on a device whose queue pairs are flushed some time after they enter the error state.
func TestUnackedAtLateFlush(t *testing.T) {
	for name, devices := range map[string]nic.Providers{"at once": inproc(), "late": late(inproc())} {
		t.Run(name, func(t *testing.T) {
			c := Component(devices)
			few := settingsOf(t, "UCX_RC_RX_QUEUE_LEN=32")
			a, b := newEnd(t, c, 1), newEndWith(t, c, 2, few)
			to, err := a.NewEndpoint(b.address())
			require.NoError(t, err)
			until(t, func() bool { return to.AMUint64(1, 2, 3) == ucs.OK }, a, b)
			until(t, func() bool { return len(b.got) == 1 }, a, b)
			sent := 1
			for to.AMUint64(1, 2, 3) == ucs.OK { // more than b has receives for, and it does not post new ones
				sent++
			}
			closed := make(chan error, 1)
			go func() { closed <- b.Close() }()
			until(t, func() bool { return len(a.failures) > 0 }, a)
			require.NoError(t, <-closed)
			require.Greater(t, sent, 100)
			require.Len(t, a.failures, 1)
			require.NoError(t, a.failures[0].Err, "an orderly end")
			require.False(t, a.failures[0].Acked, "%d messages", sent)
		})
	}
}
