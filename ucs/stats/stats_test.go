package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// counter is how owners enumerate theirs.
type counter int

const (
	sent counter = iota
	lost
	numCounters
)

var names = [numCounters]string{sent: "sent", lost: "lost"}

func TestSet(t *testing.T) {
	s := NewSet(names[:])
	s.Inc(int(sent))
	s.Inc(int(sent))
	s.Add(int(lost), 40)
	assert.Equal(t, uint64(2), s.Value(int(sent)))
	assert.Equal(t, []Counter{{"sent", 2}, {"lost", 40}}, s.Snapshot())
	assert.Panics(t, func() { s.Inc(maxCounters) })
	assert.Empty(t, NewSet(nil).Snapshot())
}

func TestNewSetRefusesNames(t *testing.T) {
	assert.Panics(t, func() { NewSet([]string{"a", "b", "a"}) })
	assert.Panics(t, func() { NewSet([]string{"a", ""}) })
	var many [maxCounters + 1]string
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	assert.NotPanics(t, func() { NewSet(many[1:]) })
	assert.Panics(t, func() { NewSet(many[:]) })
	mine := []string{"a"}
	s := NewSet(mine)
	mine[0] = "scribbled"
	assert.Equal(t, "a", s.Snapshot()[0].Name)
}

// TestReadWhileCounting: values never go back and the last one is seen; the
// race detector watches.
func TestReadWhileCounting(t *testing.T) {
	const n = 200_000
	s := NewSet(names[:])
	go func() {
		for range n {
			s.Inc(int(sent))
			s.Add(int(lost), 3)
		}
	}()
	var last uint64
	for last < 3*n {
		v := s.Snapshot()[lost].Value
		require.GreaterOrEqual(t, v, last)
		require.Zero(t, v%3)
		last = v
	}
	assert.Equal(t, uint64(n), s.Value(int(sent)))
}

func TestGroup(t *testing.T) {
	var g Group
	a, b := NewSet(names[:]), NewSet([]string{"retries"})
	require.NoError(t, g.Add("shm", a))
	require.NoError(t, g.Add("ep.3", b))
	assert.ErrorIs(t, g.Add("shm", b), ucs.ErrInvalid)
	assert.ErrorIs(t, g.Add("", b), ucs.ErrInvalid)
	a.Inc(int(sent))
	b.Add(0, 1<<63)
	assert.Equal(t, []Counter{{"shm.sent", 1}, {"shm.lost", 0}, {"ep.3.retries", 1 << 63}}, g.Snapshot())

	var text strings.Builder
	require.NoError(t, g.WriteText(&text))
	assert.Equal(t, "shm.sent      1\nshm.lost      0\nep.3.retries  9223372036854775808\n", text.String())
	js, err := json.Marshal(&g)
	require.NoError(t, err)
	assert.Equal(t, `{"ep.3":{"retries":9223372036854775808},"shm":{"lost":0,"sent":1}}`, string(js))
	assert.Error(t, g.WriteText(broken{}))

	g.Remove("shm")
	g.Remove("shm")
	assert.Equal(t, []Counter{{"ep.3.retries", 1 << 63}}, g.Snapshot())
	require.NoError(t, g.Add("shm", b), "free again")
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestEmptyGroup(t *testing.T) {
	var g Group
	assert.Empty(t, g.Snapshot())
	js, err := json.Marshal(&g)
	require.NoError(t, err)
	assert.Equal(t, "{}", string(js))
	var text strings.Builder
	require.NoError(t, g.WriteText(&text))
	assert.Empty(t, text.String())
}

func TestCountingDoesNotAllocate(t *testing.T) {
	s := NewSet(names[:])
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.Inc(0); s.Add(1, 2) }))
}

func BenchmarkInc(b *testing.B) {
	s := NewSet(names[:])
	b.ReportAllocs()
	for b.Loop() {
		s.Inc(0)
	}
}
