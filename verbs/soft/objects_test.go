package soft

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// openTest opens an in-process device that is closed at the end.
func openTest(t testing.TB, c Config) *device {
	t.Helper()
	c.Link = LinkInproc
	if c.Engine == EngineBackground {
		c.Engine = EngineInline // nothing moves behind the test's back
	}
	p := New(c)
	infos, err := p.Devices()
	require.NoError(t, err)
	require.Len(t, infos, 1)
	ctx, err := p.Open(infos[0])
	require.NoError(t, err)
	closeAtEnd(t, ctx)
	return ctx.(*device)
}

// closeAtEnd closes what must not be busy then.
func closeAtEnd(t testing.TB, c interface{ Close() error }) {
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
}

// testPD allocates a protection domain.
func testPD(t testing.TB, d *device) *pd {
	t.Helper()
	p, err := d.AllocPD()
	require.NoError(t, err)
	closeAtEnd(t, p)
	return p.(*pd)
}

// testCQ creates a completion queue.
func testCQ(t testing.TB, d *device, c verbs.CQConfig) *cq {
	t.Helper()
	q, err := d.CreateCQ(c)
	require.NoError(t, err)
	closeAtEnd(t, q)
	return q.(*cq)
}

// testMR registers n bytes.
func testMR(t testing.TB, p *pd, n int, a verbs.Access) *mr {
	t.Helper()
	m, err := p.Register(make([]byte, n), verbs.MRConfig{Access: a})
	require.NoError(t, err)
	closeAtEnd(t, m)
	return m.(*mr)
}

// gate fails where f allocates.
func gate(t *testing.T, f func()) {
	t.Helper()
	if !race.Enabled {
		assert.Zero(t, testing.AllocsPerRun(1000, f))
	}
}

// refused asserts an error of that kind which names something.
func refused(t *testing.T, err, kind error, names string) {
	t.Helper()
	require.ErrorIs(t, err, kind)
	assert.ErrorContains(t, err, names)
}

type (
	foreignCQ   struct{ verbs.CQ }
	foreignSRQ  struct{ verbs.SRQ }
	foreignTD   struct{ verbs.TD }
	foreignChan struct{ verbs.CompChannel }
)

func TestForeignObjects(t *testing.T) {
	d, o := openTest(t, Config{}), openTest(t, Config{})
	p, op := testPD(t, d), testPD(t, o)
	c, oc := testCQ(t, d, verbs.CQConfig{Depth: 1}), testCQ(t, o, verbs.CQConfig{Depth: 1})
	osrq, err := op.CreateSRQ(verbs.SRQAttr{MaxWR: 1})
	require.NoError(t, err)
	closeAtEnd(t, osrq)
	otd, err := o.AllocTD(verbs.TDConfig{})
	require.NoError(t, err)
	closeAtEnd(t, otd)
	och, err := o.CreateCompChannel()
	require.NoError(t, err)
	closeAtEnd(t, och)

	for _, tc := range []struct {
		name  string
		qp    verbs.QPConfig
		names string
	}{
		{"no send cq", verbs.QPConfig{RecvCQ: c}, "no send CQ"},
		{"no receive cq", verbs.QPConfig{SendCQ: c}, "no receive CQ"},
		{"send cq of another device", verbs.QPConfig{SendCQ: oc, RecvCQ: c}, "send CQ of another device"},
		{"receive cq of another provider", verbs.QPConfig{SendCQ: c, RecvCQ: foreignCQ{}}, "receive CQ soft.foreignCQ of another provider"},
		{"srq of another device", verbs.QPConfig{SendCQ: c, RecvCQ: c, SRQ: osrq}, "SRQ of another device"},
		{"srq of another provider", verbs.QPConfig{SendCQ: c, RecvCQ: c, SRQ: foreignSRQ{}}, "SRQ soft.foreignSRQ of another provider"},
		{"typed nil", verbs.QPConfig{SendCQ: (*cq)(nil), RecvCQ: c}, "send CQ"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.qp.Type = verbs.RC
			_, err := p.CreateQP(tc.qp)
			refused(t, err, ucs.ErrInvalid, tc.names)
		})
	}
	_, err = p.Parent(otd)
	refused(t, err, ucs.ErrInvalid, "thread domain of another device")
	_, err = p.Parent(foreignTD{})
	refused(t, err, ucs.ErrInvalid, "of another provider")
	_, err = d.CreateCQ(verbs.CQConfig{Depth: 1, Channel: och})
	refused(t, err, ucs.ErrInvalid, "channel of another device")
	_, err = d.CreateCQ(verbs.CQConfig{Depth: 1, Domain: op})
	refused(t, err, ucs.ErrInvalid, "domain of another device")
	_, err = d.CreateCQ(verbs.CQConfig{Depth: 1, Channel: foreignChan{}})
	refused(t, err, ucs.ErrInvalid, "of another provider")
}

func TestCreateQPRefuses(t *testing.T) {
	d := openTest(t, Config{Limits: Limits{QPs: 1, QPWR: 100}, MaxInline: 32})
	p := testPD(t, d)
	c := testCQ(t, d, verbs.CQConfig{Depth: 1})
	for _, tc := range []struct {
		name  string
		typ   verbs.QPType
		caps  verbs.QPCaps
		kind  error
		names string
	}{
		{"type", 9, verbs.QPCaps{}, ucs.ErrInvalid, "type 9"},
		{"sends", verbs.RC, verbs.QPCaps{MaxSend: 101}, ucs.ErrInvalid, "MaxSend 101"},
		{"receives", verbs.UD, verbs.QPCaps{MaxRecv: 101}, ucs.ErrInvalid, "MaxRecv 101"},
		{"negative", verbs.RC, verbs.QPCaps{MaxSend: -1}, ucs.ErrInvalid, "MaxSend -1"},
		{"send pieces", verbs.RC, verbs.QPCaps{MaxSendSGE: 5}, ucs.ErrInvalid, "MaxSendSGE 5"},
		{"receive pieces", verbs.RC, verbs.QPCaps{MaxRecvSGE: 5}, ucs.ErrInvalid, "MaxRecvSGE 5"},
		{"inline", verbs.RC, verbs.QPCaps{MaxInline: 33}, ucs.ErrInvalid, "MaxInline 33"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := p.CreateQP(verbs.QPConfig{Type: tc.typ, SendCQ: c, RecvCQ: c, Caps: tc.caps})
			refused(t, err, tc.kind, tc.names)
		})
	}
	q, err := p.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c, Caps: verbs.QPCaps{MaxSend: 100, MaxRecv: 100}})
	require.NoError(t, err)
	_, err = p.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c})
	refused(t, err, ucs.ErrNoResource, "limit")
	refused(t, c.Close(), ucs.ErrBusy, "2 ends of queue pairs")
	refused(t, p.Close(), ucs.ErrBusy, "1 objects")
	require.NoError(t, q.Close())
	require.NoError(t, q.Close())
	q, err = p.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: c, RecvCQ: c})
	require.NoError(t, err)
	require.NoError(t, q.Close())
}
