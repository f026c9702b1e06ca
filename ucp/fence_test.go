package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// mute is a transport without its active messages, so that these go another way.
type mute struct{ uct.Component }

func (m mute) OpenDomain(i uct.DomainInfo, c uct.DomainConfig) (uct.Domain, error) {
	d, err := m.Component.OpenDomain(i, c)
	return muteDomain{d}, err
}

type muteDomain struct{ uct.Domain }

// muteRefuses is the length of memory that it does not register.
const muteRefuses = 4096

func (m muteDomain) Register(b []byte, f uct.MemFlags) (uct.Mem, error) {
	if len(b) == muteRefuses {
		return nil, ucs.ErrUnsupported
	}
	return m.Domain.Register(b, f)
}

func (m muteDomain) OpenIface(i uct.IfaceInfo, c uct.IfaceConfig) (uct.Iface, error) {
	f, err := m.Domain.OpenIface(i, c)
	if err != nil {
		return nil, err
	}
	a := *f.Attr()
	a.Ops &^= uct.OpsAM
	return muteIface{f, &a}, nil
}

type muteIface struct {
	uct.Iface
	attr *uct.IfaceAttr
}

func (m muteIface) Attr() *uct.IfaceAttr { return m.attr }

// newTwoLanePair has memory over rc and messages over ud.
func newTwoLanePair(t *testing.T) *swPair {
	t.Helper()
	var ps []uct.Component
	for _, c := range transports.All() {
		switch c.Name() {
		case "rc":
			ps = append(ps, mute{c})
		case "ud":
			ps = append(ps, c)
		}
	}
	p := newPairOver(t, ps, 1<<20)
	lanes := p.e.Info().Lanes
	require.Len(t, lanes, 2)
	require.Equal(t, "rc", lanes[0].Transport)
	require.Equal(t, "ud", lanes[1].Transport)
	return p
}

// Memory by one transport and messages by another: a fence orders them, and what
// is posted behind it waits, also where both were posted before either was
// connected.
func TestFenceAcrossLanes(t *testing.T) {
	for name, fence := range map[string]func(p *swPair){
		"endpoint": func(p *swPair) { p.e.Fence() },
		"worker":   func(p *swPair) { p.a.Fence() },
	} {
		t.Run(name, func(t *testing.T) {
			p := newTwoLanePair(t)
			w, big := p.word(0), make([]byte, 100_000)
			const rounds = 300
			for i := range uint64(rounds) {
				w.Add(1)
				if i%50 == 0 {
					p.k.Put(big, 64)
				}
				p.k.PutUint64(i, 8)
				fence(p)
				p.e.TagSendUint64(i, 7)
				if i%3 == 0 {
					fence(p)
				}
			}
			flush := p.e.Flush()
			buf := make([]byte, 8)
			for i := range uint64(rounds) {
				r := p.b.TagRecv(buf, 7, ^Tag(0))
				p.until(r.Done)
				require.NoError(t, r.Err())
				require.Equal(t, i, wire.Uint64(buf, 0))
				require.Greater(t, p.m.Load64(0), i, "the atomic before the message is there")
				require.GreaterOrEqual(t, p.m.Load64(8), i, "the put before the message is there")
			}
			p.must(flush)
			p.rested()
		})
	}
}

// What the owner's worker has to do is before the fence, too.
func TestFenceAcrossLanesWithSoftware(t *testing.T) {
	p := newTwoLanePair(t)
	m, err := p.x.Register(make([]byte, muteRefuses), MemConfig{})
	require.NoError(t, err)
	k, err := p.e.UnpackKey(m.Key())
	require.NoError(t, err)
	require.True(t, k.rma.emulOnly)
	p.must(p.k.PutUint64(0, 0)) // connects
	p.must(p.e.Flush())
	for i := uint64(1); i <= 50; i++ {
		k.PutUint64(i, 0)
		p.e.Fence()
		p.k.PutUint64(i, 0)
		p.e.Fence()
		for range 100 {
			p.a.Progress() // its owner does nothing
		}
		require.Less(t, p.m.Load64(0), i)
		p.until(func() bool { return p.m.Load64(0) == i })
		require.Equal(t, i, m.Load64(0))
	}
	p.must(p.e.Flush())
	p.rested()
}

// An endpoint that ends in the middle of a fence does not leave others to the
// same peer waiting.
func TestFenceAcrossLanesOfAnAbortedEndpoint(t *testing.T) {
	p := newTwoLanePair(t)
	other, err := p.a.NewEndpoint(p.b.Address(), EndpointConfig{})
	require.NoError(t, err)
	p.must(other.TagSendUint64(1, 7))
	p.word(0).Add(1)
	p.e.Fence()
	require.Equal(t, 1, p.a.t.fences)
	late := other.TagSendUint64(2, 7)
	p.e.Abort(nil)
	p.must(late)
	p.must(other.Flush())
	require.Len(t, other.Info().Lanes, 1)
	p.rested()
}

// rested requires that no fence holds anything any more.
func (p *swPair) rested() {
	p.t.Helper()
	require.Zero(p.t, p.a.t.fences)
	for i := range p.a.t.lanes {
		require.Nil(p.t, p.a.t.lanes[i].stalledEp())
	}
}
