package ucptest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var featureCases = []Case{
	{"what a context was not opened for", featureRefusals},
	{"what arrives for a feature that a context lacks", featureArrivals},
}

const everyFeature = ucp.FeatureTag | ucp.FeatureRMA | ucp.FeatureAtomics | ucp.FeatureAM

// withFeatures returns a worker of a context that was opened for f.
func (p *Pair) withFeatures(f ucp.Feature) (*ucp.Context, *ucp.Worker) {
	p.T.Helper()
	x, err := p.Factory.open(ucp.Config{Features: f, CloseTimeout: 5 * time.Second})
	require.NoError(p.T, err)
	p.T.Cleanup(func() { require.NoError(p.T, x.Close()) })
	return x, p.workerOf(x, ucp.WorkerConfig{Mode: p.mode})
}

// featureRefusals: each operation runs with its feature alone, and is refused by name without
// it, with all others.
func featureRefusals(t *testing.T, p *Pair) {
	for _, feature := range []struct {
		f    ucp.Feature
		name string
	}{{ucp.FeatureTag, "FeatureTag"}, {ucp.FeatureRMA, "FeatureRMA"}, {ucp.FeatureAtomics, "FeatureAtomics"}, {ucp.FeatureAM, "FeatureAM"}} {
		for _, f := range []ucp.Feature{feature.f, everyFeature &^ feature.f} {
			x, w := p.withFeatures(f)
			e := p.Connect(w, w)
			refused := func(err error, of ucp.Feature, name string) {
				t.Helper()
				if f&of != 0 {
					require.NoError(t, err, "features %b, %s", f, name)
					return
				}
				require.ErrorIs(t, err, ucp.ErrUnsupported, "features %b, %s", f, name)
				require.ErrorContains(t, err, "opened without Feature", name)
				if of == feature.f {
					require.ErrorContains(t, err, feature.name, name)
				}
			}
			wait := func(r ucp.Request, of ucp.Feature, name string) {
				t.Helper()
				p.Until(r.Done)
				refused(r.Wait(p.deadline), of, name)
			}

			buf, got := make([]byte, 8), make([]byte, 8)
			var recvs []ucp.RecvRequest
			for range 5 {
				recvs = append(recvs, w.TagRecv(got, 1, exact))
			}
			recvs = append(recvs, w.TagRecvV([][]byte{got}, 1, exact))
			wait(e.TagSend(buf, 1), ucp.FeatureTag, "tag send")
			wait(e.TagSendUint64(1, 1), ucp.FeatureTag, "tag send of a word")
			wait(e.TagSendInline(buf, 1), ucp.FeatureTag, "inline tag send")
			wait(e.TagSendV([][]byte{buf}, 1), ucp.FeatureTag, "tag send of pieces")
			wait(e.TagSendSync(buf, 1), ucp.FeatureTag, "sync send")
			wait(e.TagSendWith(buf, 1, rndv), ucp.FeatureTag, "rendezvous")
			for _, r := range recvs {
				_, err := p.Recv(r)
				refused(err, ucp.FeatureTag, "tag receive")
			}
			_, found := w.TagProbe(0, 0)
			require.False(t, found)

			refused(w.HandleAM(1, func(*ucp.AM) {}), ucp.FeatureAM, "handler")
			wait(e.AMSend(1, nil, buf), ucp.FeatureAM, "active message")
			wait(e.AMSend(1, buf, buf), ucp.FeatureAM, "active message with a header")
			wait(e.AMSendWith(1, nil, pattern(100_000, 1), rndv), ucp.FeatureAM, "active message by rendezvous")

			m, err := x.Allocate(64, ucp.MemConfig{})
			require.NoError(t, err)
			for access, of := range map[ucp.Access]ucp.Feature{
				ucp.AccessRemotePut: ucp.FeatureRMA, ucp.AccessRemoteGet: ucp.FeatureRMA, ucp.AccessRemoteAtomic: ucp.FeatureAtomics,
			} {
				require.Equal(t, f&of != 0, m.Query().Access&access != 0, "the rights that memory grants by itself")
				_, err := x.Allocate(64, ucp.MemConfig{Access: access})
				refused(err, of, "memory with a right by name")
			}
			k, err := e.UnpackKey(m.Key())
			refused(err, ucp.FeatureRMA|ucp.FeatureAtomics, "key")
			if err != nil {
				continue
			}
			wait(k.Put(buf, 0), ucp.FeatureRMA, "put")
			wait(k.PutUint64(1, 0), ucp.FeatureRMA, "put of a word")
			wait(k.Get(buf, 0), ucp.FeatureRMA, "get")
			_, err = p.value(k.GetUint64(0))
			refused(err, ucp.FeatureRMA, "get of a word")
			a, err := ucp.AtomicAt[uint64](k, 0)
			refused(err, ucp.FeatureAtomics, "atomic")
			if err == nil {
				wait(a.Add(1), ucp.FeatureAtomics, "add")
			}
			require.NoError(t, k.Close())
		}
	}
	for _, f := range []ucp.Feature{1 << 4, 1 << 31} {
		_, err := p.Factory.open(ucp.Config{Features: f})
		require.ErrorIs(t, err, ucp.ErrInvalid)
	}
}

// featureArrivals: messages for a feature that the receiver lacks are rejected, or dropped and
// counted, hold no memory there, and do not disturb what follows.
func featureArrivals(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("both ends have the same context")
	}
	for _, f := range []ucp.Feature{ucp.FeatureTag, ucp.FeatureAM} {
		_, w := p.withFeatures(f)
		e := p.Connect(p.A, w)
		data := pattern(100_000, 1)
		var sent, rejected []ucp.Request
		lost := 0
		if f == ucp.FeatureAM {
			sent = append(sent, e.TagSend(data[:8], 1), e.TagSend(data[:3000], 1), e.TagSendWith(data, 1, ucp.Opts{Flags: ucp.ForceEager}))
			rejected = append(rejected, e.TagSendSync(data[:8], 1), e.TagSendSync(data, 1), e.TagSend(data, 1))
		} else {
			sent = append(sent, e.AMSend(1, nil, data[:8]), e.AMSend(1, data[:8], data[:3000]), e.AMSendWith(1, nil, data, ucp.Opts{Flags: ucp.ForceEager}))
			rejected = append(rejected, e.AMSendWith(1, nil, data, rndv))
		}
		lost += len(sent)
		for _, r := range sent {
			require.NoError(t, p.Wait(r), "eager: the sender does not learn of it")
		}
		for _, r := range rejected {
			require.ErrorIs(t, p.Wait(r), ucp.ErrRejected)
		}
		if f == ucp.FeatureAM {
			require.ErrorContains(t, p.Wait(rejected[0]), "opened without FeatureTag")
			got := make(chan int, 1)
			require.NoError(t, w.HandleAM(1, func(m *ucp.AM) { got <- m.Len }))
			require.NoError(t, p.Wait(e.AMSend(1, nil, data[:5])))
			p.Until(func() bool { return len(got) == 1 })
		} else {
			r := w.TagRecv(make([]byte, 8), 1, exact)
			require.NoError(t, p.Wait(e.TagSend(data[:5], 1)))
			p.MustRecv(r)
		}
		for _, c := range w.Stats().Snapshot() {
			switch c.Name {
			case "ucp.unhandled":
				require.GreaterOrEqual(t, int(c.Value), lost)
			case "ucp.unexpected":
				require.Zero(t, c.Value, "a message was kept")
			}
		}
	}
}
