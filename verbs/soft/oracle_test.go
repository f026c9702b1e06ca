package soft

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/internal/sim"
)

// The oracle run: random operations on random queue pairs over a bad network,
// against a naive model of what must come of them. A failing seed is run again
// with a trace; GOUCX_ORACLE_SEED names one to run alone.

// TestOracle runs seeds: three hundred, or ten thousand.
func TestOracle(t *testing.T) {
	if seed, err := strconv.ParseUint(os.Getenv("GOUCX_ORACLE_SEED"), 10, 64); err == nil {
		if err := runOracle(seed, true, make(tally)); err != nil {
			t.Fatal(err)
		}
		return
	}
	seeds := uint64(300)
	if os.Getenv("GOUCX_TEST_LONG") != "" {
		seeds = 10_000
	}
	const parts = 2
	var tallies [parts]tally
	t.Run("seeds", func(t *testing.T) {
		for part := range uint64(parts) {
			tallies[part] = make(tally)
			t.Run(fmt.Sprintf("part %d", part), func(t *testing.T) {
				t.Parallel()
				for seed := 1 + part; seed <= seeds && !t.Failed(); seed += parts {
					if err := runOracle(seed, false, tallies[part]); err != nil {
						t.Errorf("seed %d: %v\n%v", seed, err, runOracle(seed, true, make(tally)))
					}
				}
			})
		}
	})
	sum := make(tally)
	for _, one := range tallies {
		for what, n := range one {
			sum[what] += n
		}
	}
	t.Logf("%d seeds: %v", seeds, sum)
	for i := range plans {
		assert.NotZero(t, sum[plans[i].name], "what never happened: %s", plans[i].name)
	}
	for _, what := range []string{"datagrams", "datagrams to a group", "requests by windows", "window: BIND_MW", "window: LOCAL_INV", "window: SEND_WITH_INV"} {
		assert.NotZero(t, sum[what], "what never happened: %s", what)
	}
	assert.Greater(t, sum["unreliable messages"], 4*int(seeds), "the usual number is twice as high")
}

// tally counts what happened in runs.
type tally map[string]int

// violation is what a run ends with that the model does not allow.
type violation string

func (o *oracle) fail(format string, args ...any) {
	panic(violation(fmt.Sprintf(format, args...)))
}

// runOracle runs one seed and says what was wrong.
func runOracle(seed uint64, trace bool, t tally) (err error) {
	o := &oracle{tally: t, threads: seed%4 < 2}
	defer func() {
		if v := recover(); v != nil {
			why, ok := v.(violation)
			if !ok {
				why = violation(fmt.Sprintf("panic: %v", v))
				if trace {
					panic(v)
				}
			}
			err = fmt.Errorf("%s", why)
			if trace {
				err = fmt.Errorf("%s\n%s%s", why, o.net.Trace(), o.describe())
			}
		}
	}()
	o.open(seed, trace)
	o.work()
	o.finish()
	o.check()
	o.close()
	return nil
}

// oracle is one run.
type oracle struct {
	*simWorld
	rng       *rand.Rand
	threads   bool // each queue pair has an engine of its own
	devs      []*oracleDev
	eps       []*endpoint
	tally     tally
	datagrams []*datagramSent
	// unreliable are the ends of an unreliable connection.
	unreliable []*unreliableEnd
	// By device: what additions to its counter found, and how many were posted.
	olds []map[uint64]bool
	adds []int
}

// chance is true with probability p.
func (o *oracle) chance(p float64) bool { return o.rng.Float64() < p }

// one of its arguments.
func pick[T any](o *oracle, of ...T) T { return of[o.rng.IntN(len(of))] }

// randomFaults are those of devices, beside the network's.
func (o *oracle) randomFaults() *Faults {
	p := func() float64 { return pick(o, 0, 0, 0.01) }
	return &Faults{
		Seed: o.rng.Uint64(), Loss: p(), Duplicate: p(), Corrupt: p(), Reorder: p(),
		Delay: time.Duration(o.rng.IntN(10)) * time.Microsecond, Jitter: time.Duration(1+o.rng.IntN(50)) * time.Microsecond,
	}
}

// randomLink is a network with some faults.
func (o *oracle) randomLink() sim.Link {
	p := func() float64 { return pick(o, 0, 0, 0.005, 0.02, 0.04) }
	l := sim.Link{
		Latency: time.Duration(1+o.rng.IntN(20)) * time.Microsecond,
		Loss:    p(), Duplicate: p(), Corrupt: p() / 2, Reorder: p(),
		Jitter: time.Duration(1+o.rng.IntN(100)) * time.Microsecond,
	}
	if o.chance(0.3) {
		l.Stall, l.StallFor = 0.002, time.Duration(o.rng.IntN(500))*time.Microsecond
	}
	if o.chance(0.3) {
		l.Bandwidth, l.Overhead, l.Queue = 1e9, 46, 128<<10
	}
	return l
}
