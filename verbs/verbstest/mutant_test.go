package verbstest

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// mutant is the software RNIC on a simulated network with one fault planted.
type mutant struct {
	name  string
	finds string // the case that must fail
	faults
}

// faults change something at the calls of a device; nil: nothing.
type faults struct {
	fabric   func(*Fabric)
	cq       func(verbs.CQ) verbs.CQ
	qp       func(verbs.QP) verbs.QP
	mr       func(verbs.MR) verbs.MR
	srq      func(verbs.SRQ) verbs.SRQ
	context  func(verbs.Context) verbs.Context
	qpConfig func(*verbs.QPConfig)
	mrConfig func(*verbs.MRConfig)
	cqConfig func(*verbs.CQConfig)
	modify   func(*verbs.QPAttr, verbs.AttrMask)
	channel  func(verbs.CompChannel) verbs.CompChannel
	mw       func(verbs.MW) verbs.MW
	bind     func(*verbs.MWBind)
}

// The wrapped objects. Inside stands what the device made, and what its faults
// made of it is called.
type (
	contextF struct {
		verbs.Context
		f     *faults
		known map[any]any // what the case has, by what the device made
	}
	pdF struct {
		verbs.PD
		f *faults
		c *contextF
	}
	cqF struct {
		verbs.CQ
		inside verbs.CQ
	}
	channelF struct {
		verbs.CompChannel
		inside verbs.CompChannel
	}
	srqF struct {
		verbs.SRQ
		inside verbs.SRQ
	}
	mrF struct {
		verbs.MR
		inside verbs.MR
	}
	mwF struct {
		verbs.MW
		inside verbs.MW
	}
	qpF struct {
		verbs.QP
		inside verbs.QP
		f      *faults
	}
)

// fixtureOf is the fixture of a device with faults.
func fixtureOf(f faults) Fixture {
	return Fixture{Name: "mutant", Can: Packets | Forgery, Open: func(t testing.TB, _ Needs) *Fabric {
		s := NewSimulated()
		b := s.Fabric()
		for i, a := range s.Addrs {
			p := soft.New(soft.Config{Fabric: s, Addr: a.Addr(), Port: a.Port()})
			infos, err := p.Devices()
			require.NoError(t, err)
			c, err := p.Open(infos[0])
			require.NoError(t, err)
			if f.context != nil {
				c = f.context(c)
			}
			b.Devices[i] = &contextF{c, &f, make(map[any]any)}
		}
		if f.fabric != nil {
			f.fabric(b)
		}
		return b
	}}
}

func apply[T any](f func(T) T, v T) T {
	if f == nil {
		return v
	}
	return f(v)
}

func (c *contextF) AllocPD() (verbs.PD, error) {
	p, err := c.Context.AllocPD()
	return &pdF{p, c.f, c}, err
}

func (c *contextF) CreateCompChannel() (verbs.CompChannel, error) {
	ch, err := c.Context.CreateCompChannel()
	return &channelF{apply(c.f.channel, ch), ch}, err
}

func (c *contextF) CreateCQ(v verbs.CQConfig) (verbs.CQ, error) {
	if ch, ok := v.Channel.(*channelF); ok {
		v.Channel = ch.inside
	}
	if p, ok := v.Domain.(*pdF); ok {
		v.Domain = p.PD
	}
	if c.f.cqConfig != nil {
		c.f.cqConfig(&v)
	}
	q, err := c.Context.CreateCQ(v)
	w := &cqF{apply(c.f.cq, q), q}
	c.known[q] = w
	return w, err
}

// TryAsync gives the objects that the case knows.
func (c *contextF) TryAsync() (verbs.AsyncEvent, bool) {
	v, ok := c.Context.TryAsync()
	v.QP, _ = c.known[v.QP].(verbs.QP)
	v.CQ, _ = c.known[v.CQ].(verbs.CQ)
	v.SRQ, _ = c.known[v.SRQ].(verbs.SRQ)
	return v, ok
}

// Ack takes the event of a wrapped object.
func (c *contextF) Ack(v verbs.AsyncEvent) {
	if q, ok := v.QP.(*qpF); ok {
		v.QP = q.inside
	}
	if q, ok := v.CQ.(*cqF); ok {
		v.CQ = q.inside
	}
	if q, ok := v.SRQ.(*srqF); ok {
		v.SRQ = q.inside
	}
	c.Context.Ack(v)
}

func (p *pdF) Parent(td verbs.TD) (verbs.PD, error) {
	v, err := p.PD.Parent(td)
	return &pdF{v, p.f, p.c}, err
}

func (p *pdF) Register(b []byte, c verbs.MRConfig) (verbs.MR, error) {
	if p.f.mrConfig != nil {
		p.f.mrConfig(&c)
	}
	m, err := p.PD.Register(b, c)
	if err != nil {
		return nil, err
	}
	return &mrF{apply(p.f.mr, m), m}, nil
}

func (p *pdF) CreateSRQ(a verbs.SRQAttr) (verbs.SRQ, error) {
	q, err := p.PD.CreateSRQ(a)
	if err != nil {
		return nil, err
	}
	w := &srqF{apply(p.f.srq, q), q}
	p.c.known[q] = w
	return w, nil
}

func (p *pdF) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	if q, ok := c.SendCQ.(*cqF); ok {
		c.SendCQ = q.inside
	}
	if q, ok := c.RecvCQ.(*cqF); ok {
		c.RecvCQ = q.inside
	}
	if q, ok := c.SRQ.(*srqF); ok {
		c.SRQ = q.inside
	}
	if p.f.qpConfig != nil {
		p.f.qpConfig(&c)
	}
	q, err := p.PD.CreateQP(c)
	if err != nil {
		return nil, err
	}
	w := &qpF{apply(p.f.qp, q), q, p.f}
	p.c.known[q] = w
	return w, nil
}

func (m *mrF) Reregister(pd verbs.PD, buf []byte, c verbs.MRConfig) error {
	if p, ok := pd.(*pdF); ok {
		pd = p.PD
	}
	return verbs.Reregister(m.MR, pd, buf, c)
}

func (q *cqF) Moderate(count int, period time.Duration) error {
	if m, ok := q.CQ.(verbs.Moderator); ok {
		return m.Moderate(count, period)
	}
	return verbs.Moderate(q.inside, count, period)
}

func (p *pdF) AllocMW(t verbs.MWType) (verbs.MW, error) {
	w, err := verbs.AllocMW(p.PD, t)
	if err != nil {
		return nil, err
	}
	return &mwF{apply(p.f.mw, w), w}, nil
}

func (q *qpF) BindWindow(id uint64, flags verbs.SendFlags, w verbs.MW, b verbs.MWBind) error {
	if q.f.bind != nil {
		q.f.bind(&b)
	}
	b.MR = b.MR.(*mrF).inside
	return verbs.BindWindow(q.inside, id, flags, w.(*mwF).inside, b)
}

func (q *qpF) Modify(a *verbs.QPAttr, mask verbs.AttrMask) error {
	if q.f.modify != nil {
		v := *a
		a = &v
		q.f.modify(a, mask)
	}
	return q.QP.Modify(a, mask)
}

// mutantPatience is how long a case with a planted fault may wait.
const mutantPatience = 300 * time.Millisecond

// TestMutants: each planted fault is found by the case that is meant to find it,
// which passes without the fault.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			c := findCase(t, m.finds)
			r, reason := fixtureOf(faults{}).try(t, c, patience)
			require.Empty(t, reason, "%s does not apply", m.finds)
			require.False(t, r.Failed(), "%s without the fault: %s", m.finds, r.Text())
			r, _ = fixtureOf(m.faults).try(t, c, mutantPatience)
			require.True(t, r.Failed(), "%s does not find the fault", m.finds)
		})
	}
}

func findCase(t *testing.T, name string) testCase {
	for _, th := range themes {
		for _, c := range th.cases {
			if th.name+"/"+c.name == name {
				return c
			}
		}
	}
	t.Errorf("no case %s", name)
	runtime.Goexit()
	return testCase{}
}
