package machine

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// sched is virtual time: what happens when, and chance.
type sched struct {
	t     testing.TB
	rnd   *rand.Rand
	now   ucs.Time
	queue []event
	order uint64
	trace []string
}

type event struct {
	at    ucs.Time
	order uint64
	run   func()
}

func newSched(t testing.TB, seed, stream uint64) sched {
	return sched{t: t, rnd: rand.New(rand.NewPCG(seed, stream))}
}

func (w *sched) after(d time.Duration, run func()) { w.atTime(w.now.Add(d), run) }

func (w *sched) atTime(at ucs.Time, run func()) {
	w.order++
	e := event{at, w.order, run}
	i, _ := slices.BinarySearchFunc(w.queue, e, func(a, b event) int {
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.order, a.order)) // the next one is the last
	})
	w.queue = slices.Insert(w.queue, i, e)
}

func (w *sched) run(limit int) {
	for n := 0; len(w.queue) > 0; n++ {
		if n == limit {
			require.Fail(w.t, "no end", w.tail())
		}
		e := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		w.now = e.at
		e.run()
	}
}

// oneSeed runs that seed alone and shows what happened.
var oneSeed = flag.Int64("seed", -1, "run this seed of the simulation alone, with a trace where it fails")

func (w *sched) note(f string, args ...any) {
	if *oneSeed < 0 {
		return
	}
	w.trace = append(w.trace, fmt.Sprintf("%8d ", w.now)+fmt.Sprintf(f, args...))
}

func (w *sched) tail() string {
	var s strings.Builder
	for _, l := range w.trace[:min(len(w.trace), 80)] {
		s.WriteString(l + "\n")
	}
	return s.String()
}

func (w *sched) delay() time.Duration {
	d := time.Duration(w.rnd.IntN(20)+1) * time.Microsecond
	if w.rnd.IntN(10) == 0 {
		d *= 50
	}
	return d
}
