package shm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// sleepTally is what a sleeper saw.
type sleepTally struct {
	rounds int    // messages taken
	slept  int    // rounds in which it slept
	lost   int    // of which with a message in the ring that nobody woke it for
	rescue uint64 // messages that only the periodic scan found

	moment *rand.Rand
	idle   int
}

// roleSleep takes numbered messages, sleeps whenever there is none, and answers
// each. The net of periodic scans is off.
//
// A sleep that is over after a second with a message in the ring, and that no
// signal of a slow sender ends within another, was a lost wake-up.
func roleSleep(say func(string), hear func() string) {
	var rounds, most int
	var how string
	must(fmt.Sscan(hear(), &how, &rounds, &most))
	if how == "bare" {
		globalBarrier = func() error { return nil }
	}
	var r recorder
	f := openRole(&r)
	f.scanInterval = config.Forever
	if how == "fenced" {
		f.fenceFlag = flagFence
	}
	say(encodeAddress(addressOf(f)))
	back := must(f.NewEndpoint(decodeAddress(hear()))).(*ep)
	t := sleepTally{moment: rand.New(rand.NewPCG(3, 4))}
	for ; t.slept < rounds && t.lost < most; t.rounds++ {
		if t.nap(f, func() bool { return r.n > t.rounds }) {
			t.slept++
		}
		for back.AMUint64(1, 0, 0) != ucs.OK {
			f.Progress(64)
		}
	}
	say(fmt.Sprint(t.rounds, t.slept, t.lost, f.stats.Value(statRescued)))
	hear()
}

// nap progresses until there, sleeping when idle, and reports whether it slept.
func (t *sleepTally) nap(f *iface, there func() bool) (slept bool) {
	set := shmem.NewPollSet(f.EventFD())
	wait := func(d time.Duration) bool {
		end := ucs.Now().Add(d)
		for ucs.Now().Before(end) {
			if n, _ := set.Wait(1, end.Sub(ucs.Now())); n > 0 {
				return true
			}
		}
		return false
	}
	for {
		f.Progress(64)
		if there() {
			return slept
		}
		for t.idle = t.moment.IntN(600); t.idle > 0; t.idle-- { // a moment of nanoseconds
		}
		if f.Arm(uct.EventRecv) != ucs.OK {
			continue
		}
		slept = true
		for !wait(time.Second) {
			if f.hasWork() && !wait(time.Second) {
				t.lost++
				break
			}
		}
	}
}

// TestWakeUpsBetweenProcesses: one process sends, after each answer and a moment
// that differs, to another that sleeps after each message. No wake-up is lost, as
// long as there is a barrier on one of the sides. The last row, without, shows that a
// wake-up can be lost. Whether it shows this depends on the machine: both processes must
// run at the same time, and the store must wait in its buffer while the load is done. So
// that row is repeated, and a machine that loses none is reported, not failed.
func TestWakeUpsBetweenProcesses(t *testing.T) {
	rounds := 20_000 // that slept
	switch {
	case race.Enabled: // few rounds sleep
		rounds = 2_000
	case testing.Short():
		rounds = 5_000
	case os.Getenv("GOUCX_TEST_LONG") != "":
		rounds = 1_000_000
	}
	run := func(t *testing.T, how string, n int) sleepTally {
		got := sendToSleeper(t, how, n)
		t.Logf("%s: %d rounds, %d slept, %d wake-ups lost, %d messages rescued", how, got.rounds, got.slept, got.lost, got.rescue)
		return got
	}
	for _, how := range []string{"barrier", "fenced"} {
		t.Run(how, func(t *testing.T) {
			n := rounds
			if how == "fenced" {
				n /= 4
			}
			got := run(t, how, n)
			require.Equal(t, n, got.slept)
			require.Zero(t, got.lost)
			require.Zero(t, got.rescue)
		})
	}
	t.Run("bare", func(t *testing.T) {
		const runs = 3
		for range runs {
			if got := run(t, "bare", rounds); got.lost > 0 {
				return
			}
		}
		t.Logf("this machine lost no wake-up in %d runs without a barrier: here the rows above could hardly fail", runs)
	})
}

func sendToSleeper(t *testing.T, how string, rounds int) (got sleepTally) {
	var r recorder
	f := openTest(t, &r)
	p := start(t, "sleep")
	p.say(fmt.Sprintf("%s %d %d", how, rounds, 3))
	e, err := f.NewEndpoint(decodeAddress(p.hear()))
	require.NoError(t, err)
	p.say(encodeAddress(addressOf(f)))
	random := rand.New(rand.NewPCG(1, 2))
	result := make(chan string, 1)
	var over atomic.Bool
	go func() {
		defer over.Store(true)
		defer close(result)
		result <- p.hearWithin(10 * patience)
	}()
	for i := 0; !over.Load(); i++ {
		for e.AMUint64(1, 0, uint64(i)) != ucs.OK {
			f.Progress(64)
		}
		for spins := 0; r.n <= i && !over.Load(); spins++ {
			f.Progress(64)
			if spins&0xff == 0xff {
				cpu.Yield()
			}
		}
		for range random.IntN(100) { // meets the sleeper at every step towards its sleep
			f.Progress(64)
		}
	}
	_, err = fmt.Sscan(<-result, &got.rounds, &got.slept, &got.lost, &got.rescue)
	require.NoError(t, err)
	p.say("bye")
	return got
}
