package ucp

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/rc"
	"github.com/goucx/goucx/transports/shm"
	"github.com/goucx/goucx/transports/ud"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/wireup"
)

// patched returns an address or a key of another version, or with other feature bits.
func patched(b []byte, version, features byte) []byte {
	b = bytes.Clone(b)
	b[4], b[5] = b[4]+version, b[5]|features
	sum := len(b) - 4
	binary.LittleEndian.PutUint32(b[sum:], crc32.Checksum(b[:sum], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// A worker that does not know the abort message gets the cancel of its message, and no other
// endpoint of it fails.
func TestAbortOfWorkerWithoutIt(t *testing.T) {
	for name, knows := range map[string]bool{"knows it": true, "does not": false} {
		t.Run(name, func(t *testing.T) {
			ps := []uct.Component{shm.Component()}
			x, err := Open(Config{Providers: ps})
			require.NoError(t, err)
			defer func() { require.NoError(t, x.Close()) }()
			a, err := x.NewWorker(WorkerConfig{Mode: ThreadSingle})
			require.NoError(t, err)
			b, err := x.NewWorker(WorkerConfig{Mode: ThreadSingle})
			require.NoError(t, err)
			require.EqualValues(t, wireup.FeatureAbort, b.t.address[5])
			if !knows {
				b.t.address[5] = 0
				b.t.address = patched(b.t.address, 0, 0)
			}
			e, err := a.NewEndpoint(b.t.address, EndpointConfig{})
			require.NoError(t, err)
			_ = e.TagSend(make([]byte, 1<<20), 1) // announced
			for i := 0; b.t.matching.unexpQueue.Len() == 0; i++ {
				require.Less(t, i, 1_000_000)
				a.Progress()
				b.Progress()
			}
			e.Abort(io.ErrUnexpectedEOF)
			r := b.TagRecv(make([]byte, 1<<20), 1, ^Tag(0))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for !r.Done() && ctx.Err() == nil {
				a.Progress()
				b.Progress()
			}
			_, err = r.Wait(ctx)
			if knows {
				require.ErrorIs(t, err, ErrPeerFailed)
				require.ErrorContains(t, err, io.ErrUnexpectedEOF.Error())
			} else {
				require.ErrorIs(t, err, ErrCanceled)
			}
			require.Zero(t, b.t.count.Value(cntProtocolError))
		})
	}
}

// A worker of another version is refused, with both versions named; so is one that requires
// an unknown feature, by its name. An unknown optional feature changes nothing. A peer whose own
// address is refused does not wait for replies.
func TestVersions(t *testing.T) {
	for _, tr := range []struct {
		name string
		new  func(ps func(*config.Set, *zap.Logger) []verbs.Provider) uct.Component
	}{
		{"shm", func(func(*config.Set, *zap.Logger) []verbs.Provider) uct.Component { return shm.Component() }},
		{"rc", func(ps func(*config.Set, *zap.Logger) []verbs.Provider) uct.Component { return rc.Component(ps) }},
		{"ud", func(ps func(*config.Set, *zap.Logger) []verbs.Provider) uct.Component { return ud.Component(ps) }},
	} {
		for _, c := range []struct {
			name              string
			version, features byte
			address, key      string // the errors
		}{
			{"optional feature", 0, 0x80, "", ""},
			{
				"required feature", 0, 0x08, "worker address of version 2 requires feature 3, which this program (version 2) does not know",
				"remote key of version 2 requires feature 3, which this program (version 2) does not know",
			},
			{"later version", 1, 0, "worker address has version 3, this program knows version 2", "remote key has version 3, this program knows version 2"},
		} {
			t.Run(tr.name+"/"+c.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				sw := soft.NewSwitch()
				ps := []uct.Component{tr.new(func(_ *config.Set, log *zap.Logger) []verbs.Provider {
					return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkInproc, Switch: sw, Log: log})}
				})}
				set, _, err := config.Load(config.Options{Env: []string{"UCX_SOFT_LINK=inproc"}, Dirs: []string{}}, Tables(ps)...)
				require.NoError(t, err)
				core, logs := observer.New(zapcore.WarnLevel)
				x, err := Open(Config{Providers: ps, Settings: set, Log: zap.New(core), CloseTimeout: 100 * time.Millisecond})
				require.NoError(t, err)
				defer func() { _ = x.Close() }() // a refused connection is not flushed
				a, err := x.NewWorker(WorkerConfig{Mode: ThreadSingle})
				require.NoError(t, err)
				b, err := x.NewWorker(WorkerConfig{Mode: ThreadSingle})
				require.NoError(t, err)
				refused := func(err error, text string) {
					t.Helper()
					if text == "" {
						require.NoError(t, err)
						return
					}
					require.ErrorIs(t, err, ErrInvalid)
					require.ErrorIs(t, err, ErrUnsupported)
					require.ErrorContains(t, err, text)
				}
				_, err = a.NewEndpoint(patched(b.Address(), c.version, c.features), EndpointConfig{})
				refused(err, c.address)

				a.t.address = patched(a.t.address, c.version, c.features)
				if c.address == "" {
					b.t.address = patched(b.t.address, 0, c.features)
				}
				e, err := a.NewEndpoint(b.t.address, EndpointConfig{})
				require.NoError(t, err)
				m, err := x.Register(make([]byte, 8), MemConfig{})
				require.NoError(t, err)
				_, err = e.UnpackKey(patched(m.Key(), c.version, c.features))
				refused(err, c.key)

				s := e.TagSendSync([]byte("x"), 1)
				r := b.TagRecv(make([]byte, 1), 1, ^Tag(0))
				for !s.Done() && ctx.Err() == nil {
					a.Progress()
					b.Progress()
				}
				require.NoError(t, ctx.Err(), "the sender waits forever")
				if c.address == "" {
					require.NoError(t, s.Err())
					require.Zero(t, logs.Len())
					_, err = r.Wait(ctx)
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, s.Err(), ErrPeerFailed)
				require.False(t, r.Done(), "it waits for others")
				require.Equal(t, 1, logs.Len())
				require.Contains(t, logs.All()[0].ContextMap()["error"], c.address)
				r.Cancel()
				_, _ = r.Wait(ctx)
			})
		}
	}
}
