package async

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// critical is plain memory that both sides touch: two words that must agree at
// every entry, and one that says who is in.
type critical struct {
	x, y, who, met uint64
	runs           [3]int
}

func (c *critical) visit(me, spins int) {
	if c.x != c.y || c.who != 0 {
		c.met++
	}
	c.who = uint64(me)
	c.x++
	for range spins {
		if c.who != uint64(me) {
			c.met++
		}
	}
	c.y++
	c.who = 0
	c.runs[me]++
}

const (
	workerSide = 1
	asyncSide  = 2
)

// everyTick sets a timer of o that visits at each tick it is polled for.
func everyTick(o *Owner, c *critical, spins int) {
	var again func(now ucs.Time)
	again = func(now ucs.Time) {
		c.visit(asyncSide, spins)
		o.At(now, again)
	}
	o.EnterWait()
	o.At(0, again)
	o.Leave()
}

var gates = map[string]uint32{"by barrier": 0, "by fence": gateFence}

// noise is a line that both sides write without being inside, which puts a slow
// store ahead of the one under test.
var noise struct {
	_ ucs.Pad
	n uint64
	_ ucs.Pad
}

// dawdle takes about n ns.
//
//go:noinline
func dawdle(n int) {
	if plainInside { // not under the race detector
		noise.n++
	}
	for range n {
	}
}

// TestExclusionHard hammers the two words alone, without the rule that the
// async side keeps away from a worker that moves. (It fails when the barrier or
// the fence is taken out.)
func TestExclusionHard(t *testing.T) {
	for name, gate := range gates {
		t.Run(name, func(t *testing.T) {
			if plainInside && gate == 0 && shmem.RegisterPrivate() != nil {
				t.Skip(shmem.RegisterPrivate())
			}
			a := &Async{openGateWord: gate} // no goroutine: this test is it
			o, err := a.NewOwner()
			require.NoError(t, err)
			var c critical
			var stop atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := 0; !stop.Load(); i++ {
					word, err := o.closeGate()
					if err == nil && word&1 == 0 {
						c.visit(asyncSide, 100)
					}
					o.openGate()
					dawdle(i * 13 % 512)
				}
			}()
			for began := time.Now(); time.Since(began) < 500*time.Millisecond; {
				for i := range 500 {
					dawdle(i * 7 % 256)
					if o.Enter() {
						c.visit(workerSide, 100)
						o.Leave()
					}
				}
			}
			stop.Store(true)
			<-done
			t.Logf("worker %d, async %d", c.runs[workerSide], c.runs[asyncSide])
			assert.NotZero(t, c.runs[workerSide])
			assert.NotZero(t, c.runs[asyncSide])
			assert.Zero(t, c.met)
		})
	}
}

// TestExclusion lets worker and goroutine meet by the rules.
func TestExclusion(t *testing.T) {
	for name, gate := range gates {
		t.Run(name, func(t *testing.T) {
			a := start(t, Config{Period: maxSection})
			a.openGateWord |= gate // before the first owner exists
			o := newOwner(t, a)
			var c critical
			everyTick(o, &c, 500)
			for began := time.Now(); time.Since(began) < 500*time.Millisecond; {
				for range 100 {
					if o.Enter() {
						c.visit(workerSide, 50)
						o.Leave()
					}
				}
				// Stand still for about as long as the goroutine takes to come
				// in, so that it often does when the worker is just back.
				pause := time.Duration(100+c.runs[workerSide]%500) * time.Microsecond
				for until := ucs.Now().Add(pause); ucs.Now().Before(until); {
					runtime.Gosched()
				}
			}
			o.EnterWait()
			defer o.Leave()
			t.Logf("worker %d, async %d, refused %d", c.runs[workerSide], c.runs[asyncSide], a.Stats().Skipped)
			assert.NotZero(t, c.runs[workerSide])
			assert.NotZero(t, c.runs[asyncSide])
			assert.Zero(t, c.met)
		})
	}
}

// TestExclusionOfSharedWorker: several goroutines take turns as the worker,
// as the thread modes above do.
func TestExclusionOfSharedWorker(t *testing.T) {
	a := start(t, Config{Period: maxSection})
	o := newOwner(t, a)
	var lock sync.Mutex
	var sum, asyncSum int
	var again func(now ucs.Time)
	again = func(now ucs.Time) { sum++; asyncSum++; o.At(now.Add(50*time.Microsecond), again) }
	inside(o, func() { o.After(0, again) })
	var all sync.WaitGroup
	var in atomic.Int64
	for range 8 {
		all.Go(func() {
			for range 2000 {
				lock.Lock()
				if o.Enter() {
					sum++
					in.Add(1)
					o.Leave()
				}
				lock.Unlock()
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	inside(o, func() { assert.Equal(t, int(in.Load())+asyncSum, sum) })
}

func TestEnterTwicePanicsWhenNoticed(t *testing.T) {
	a := start(t, Config{})
	o := newOwner(t, a)
	require.True(t, o.Enter())
	o.gate.Store(gateFence)
	assert.Panics(t, func() { o.Enter() })
	o.gate.Store(a.openGateWord)
}

func BenchmarkEnterLeave(b *testing.B) {
	a, err := New(Config{})
	require.NoError(b, err)
	defer func() { require.NoError(b, a.Close()) }()
	o, err := a.NewOwner()
	require.NoError(b, err)
	o.After(time.Hour, func(ucs.Time) {})
	now := ucs.Now()
	b.Run("enter+leave", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if o.Enter() {
				o.Leave()
			}
		}
	})
	b.Run("enter+poll+leave", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if o.Enter() {
				o.Poll(now)
				o.Leave()
			}
		}
	})
}
