package perf

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/perf/rte"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// limited opens so many devices and no more, and knows how many are open.
type limited struct {
	verbs.Provider
	most   int32
	opened atomic.Int32
	open   atomic.Int32
}

var errNoMore = errors.New("no more devices")

func (l *limited) Open(i verbs.DeviceInfo) (verbs.Context, error) {
	if l.opened.Add(1) > l.most {
		return nil, errNoMore
	}
	ctx, err := l.Provider.Open(i)
	if err == nil {
		l.open.Add(1)
		ctx = &counted{ctx, l}
	}
	return ctx, err
}

type counted struct {
	verbs.Context
	by *limited
}

func (c *counted) Close() error {
	c.by.open.Add(-1)
	return c.Context.Close()
}

func inproc(most int32) *limited {
	return &limited{Provider: soft.New(soft.Config{Link: soft.LinkInproc}), most: most}
}

// The two threads of a test of verbs are its sides, with a device each.
func TestVerbsThreads(t *testing.T) {
	for name, p := range variants() {
		row, err := Lookup(p.Test)
		require.NoError(t, err)
		if row.API != Verbs {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p.Iterations, p.Warmup, p.ThreadCount = 300, 30, 2
			var rows []Report
			devices := inproc(2)
			r, err := Run(Config{Verbs: devices, Interval: time.Hour, Rows: func(r Report) { rows = append(rows, r) }}, rte.Loop{}, p)
			require.NoError(t, err)
			require.Len(t, rows, 1)
			assert.Equal(t, rows[0], r.Last)
			assert.Equal(t, int64(300), r.Last.Iterations)
			want := p.Effective(row)
			want.Layout = r.Params.Layout
			assert.Equal(t, want, r.Params)
			assert.Contains(t, []Layout{Short, Zcopy}, r.Params.Layout)
			assert.Equal(t, 2, r.Params.ThreadCount)
			assert.EqualValues(t, 2, devices.opened.Load())
			assert.Zero(t, devices.open.Load())
		})
	}
}

// Where one side cannot be set up the other one does not wait for it.
func TestVerbsSideFails(t *testing.T) {
	for threads, of := range []string{"both sides on one goroutine", "each side on its own"} {
		t.Run(of, func(t *testing.T) {
			p := Defaults()
			p.Test, p.ThreadCount = "verbs_send_lat", threads+1
			devices := inproc(1)
			_, err := Run(Config{Verbs: devices}, rte.Loop{}, p)
			require.ErrorContains(t, err, errNoMore.Error())
			assert.NotErrorIs(t, err, errOtherThread)
			assert.Zero(t, devices.open.Load())
		})
	}
}

func TestVerbsThreadsNeedOneProcess(t *testing.T) {
	p := Defaults()
	p.Test, p.ThreadCount = "verbs_send_lat", 2
	_, err := Run(Config{Verbs: inproc(2)}, &localGroup{}, p)
	require.ErrorContains(t, err, "they are in one process")
	p.ThreadCount = 3
	require.ErrorContains(t, p.Check(), "one for each side")
}

// The loops of a side that has a goroutine of its own allocate nothing either: here
// it talks to itself.
func TestGateSidesAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not the product's under the race detector")
	}
	for _, name := range []string{"verbs_send_lat", "verbs_write_lat"} {
		t.Run(name, func(t *testing.T) {
			p := Defaults()
			p.Test = name
			row, err := Lookup(name)
			require.NoError(t, err)
			c := &Config{Verbs: inproc(1)}
			s := newVerbsSide(c, newLink(&Config{}, rte.Loop{}), &p, row)
			t.Cleanup(func() { require.NoError(t, s.close()) })
			require.NoError(t, s.build(c))
			allocatesNothing(t, s.kernel(), newStamps(c, &p, row))
		})
	}
}

func TestTogether(t *testing.T) {
	var mu sync.Mutex
	var got []string
	require.NoError(t, runBoth(func(g Group) error {
		theirs, err := g.Exchange([]byte{'a' + byte(g.Index())})
		for _, progress := range []func(){nil, func() {}} {
			for range 100 {
				err = errors.Join(err, g.Barrier(progress))
			}
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(theirs))
		return errors.Join(err, g.Err())
	}))
	assert.ElementsMatch(t, []string{"a", "b"}, got)
}

// A side that waits is told that the other one has failed.
func TestTogetherFails(t *testing.T) {
	wrong := errors.New("went wrong")
	for name, wait := range map[string]func(g Group) error{
		"exchange": func(g Group) error { _, err := g.Exchange(nil); return err },
		"barrier":  func(g Group) error { return g.Barrier(func() {}) },
		"asleep":   func(g Group) error { return g.Barrier(nil) },
		"looking": func(g Group) error {
			for {
				if err := g.Err(); err != nil {
					return err
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, wrong, runBoth(func(g Group) error {
				if g.Index() == 0 {
					return wrong
				}
				err := wait(g)
				assert.Equal(t, errOtherThread, err)
				return err
			}))
		})
	}
}
