package soft

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestBusy: what others were made in or work with is not closed before them.
func TestBusy(t *testing.T) {
	d := openTest(t, Config{})
	tdom, err := d.AllocTD(verbs.TDConfig{Sharing: 1})
	require.NoError(t, err)
	p, err := d.AllocPD()
	require.NoError(t, err)
	par, err := p.Parent(tdom)
	require.NoError(t, err)
	assert.True(t, par.(*pd).Single())
	assert.False(t, p.(*pd).Single())
	refused(t, tdom.Close(), ucs.ErrBusy, "1 parent domains")
	refused(t, p.Close(), ucs.ErrBusy, "1 objects")
	grand, err := par.Parent(nil)
	require.NoError(t, err)
	assert.True(t, grand.(*pd).protection == p.(*pd).protection)
	assert.False(t, grand.(*pd).Single(), "the promise is the thread domain's")
	refused(t, par.Close(), ucs.ErrBusy, "1 objects")
	require.NoError(t, grand.Close())

	m, err := par.Register(make([]byte, 1), verbs.MRConfig{})
	require.NoError(t, err)
	s, err := par.CreateSRQ(verbs.SRQAttr{MaxWR: 4})
	require.NoError(t, err)
	c := testCQ(t, d, verbs.CQConfig{Depth: 1})
	q, err := p.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c, SRQ: s})
	require.NoError(t, err)
	refused(t, s.Close(), ucs.ErrBusy, "1 queue pairs")
	refused(t, par.Close(), ucs.ErrBusy, "2 objects")
	refused(t, d.Close(), ucs.ErrBusy, `"inproc"`)
	require.NoError(t, q.Close())
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	refused(t, par.Close(), ucs.ErrBusy, "1 objects")
	require.NoError(t, m.Close())
	require.NoError(t, par.Close())
	require.NoError(t, par.Close())
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.NoError(t, tdom.Close())
	require.NoError(t, tdom.Close())

	_, err = p.Register(make([]byte, 1), verbs.MRConfig{})
	refused(t, err, ucs.ErrClosed, "protection domain")
	_, err = p.Parent(nil)
	refused(t, err, ucs.ErrClosed, "protection domain")
	o := testPD(t, d)
	_, err = o.Parent(tdom)
	refused(t, err, ucs.ErrClosed, "thread domain")
	_, err = o.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c, SRQ: s})
	refused(t, err, ucs.ErrClosed, "queue")
}

func TestDomainLimits(t *testing.T) {
	d := openTest(t, Config{Limits: Limits{PDs: 2}})
	p := testPD(t, d)
	testPD(t, d)
	_, err := d.AllocPD()
	refused(t, err, ucs.ErrNoResource, "2 are open")
	_, err = p.Parent(nil)
	refused(t, err, ucs.ErrNoResource, "parent domain")
	for _, s := range []int{-1, 3} {
		_, err = d.AllocTD(verbs.TDConfig{Sharing: s})
		refused(t, err, ucs.ErrInvalid, "want 0 to 2")
	}
}

// BenchmarkManyQPs makes and closes ten thousand queue pairs.
func BenchmarkManyQPs(b *testing.B) {
	const n = 10_000
	d := openTest(b, Config{})
	p := testPD(b, d)
	c := testCQ(b, d, verbs.CQConfig{Depth: 10})
	qs := make([]verbs.QP, n)
	for b.Loop() {
		for i := range qs {
			q, err := p.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c, Caps: verbs.QPCaps{MaxSend: 128, MaxRecv: 128}})
			if err != nil {
				b.Fatal(err)
			}
			qs[i] = q
		}
		for _, q := range qs {
			if err := q.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/qp")
}
