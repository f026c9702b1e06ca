package ucptest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// The cases of order hold a pair to docs/ordering.md, and to nothing else, over
// random operations. They differ in their settings.
var orderCases = []Case{
	{"121 order of random operations", orderUnder(settings{rndv: defaultRndv})},
	{"121 order with small queues and segments", orderUnder(settings{env: smallQueues, rndv: 2 << 10})},
	{"121 order where everything is announced", orderUnder(settings{env: []string{"UCX_RNDV_THRESH=0"}, seldom: true})},
	{"121 order where nothing is announced", orderUnder(settings{env: []string{"UCX_RNDV_THRESH=inf"}, rndv: math.MaxInt, seldom: true})},
	{"121 order above the receiver's budget", orderUnder(settings{env: []string{"UCX_UNEXPECTED_BUDGET=16k"}, rndv: defaultRndv, throttled: true, seldom: true})},
	{"121 order with few credits", orderUnder(settings{env: slices.Concat(smallQueues, []string{"UCX_RNDV_OUTSTANDING=2"}), rndv: 2 << 10, seldom: true})},
	{"121 order of connections that sleep", orderUnder(settings{env: slices.Concat(smallQueues, []string{"UCX_MAX_LIVE_CONNECTIONS=1"}), rndv: 2 << 10, seldom: true})},
}

// smallQueues make each operation find no room before long.
var smallQueues = []string{
	"UCX_RNDV_THRESH=2k", "UCX_ZCOPY_THRESH=4k",
	"UCX_SELF_SEG_SIZE=512", "UCX_SELF_FIFO_SIZE=4",
	"UCX_SHM_RING_CELLS=8", "UCX_SHM_RING_SIZE=4k", "UCX_SHM_RING_MAX_SIZE=4k",
	"UCX_RC_SEG_SIZE=512", "UCX_RC_TX_QUEUE_LEN=16", "UCX_RC_TX_BUFS=16", "UCX_RC_RX_QUEUE_LEN=32",
	"UCX_SOFT_MTU=512", "UCX_UD_TX_QUEUE_LEN=32", "UCX_UD_RX_QUEUE_LEN=64", "UCX_UD_MAX_WINDOW=4",
}

const (
	// defaultRndv is what UCX_RNDV_THRESH=auto means where peers do not fetch messages.
	defaultRndv = 64 << 10
	// fetchThresh is the least that UCX_SHM_FETCH_THRESH=auto means: longer tag messages may be announced over shm.
	fetchThresh = 4 << 10
)

// settings are those of a case.
type settings struct {
	env       []string
	rndv      int  // UCX_RNDV_THRESH
	throttled bool // the receiver's budget is spent, so that active messages have no order
	seldom    bool // fewer operations, but for the long setting
}

// order is the model of what one endpoint was asked for, and of what its target may
// see of it.
//
// Each operation has a position. A fence, and a flush that was waited for, begins an
// epoch: what was posted in an epoch takes effect after all of the epochs before, and
// in no order of its own but that of tags, of active messages, and of atomics.
type order struct {
	settings
	t        *testing.T
	p        *Pair
	r        *rand.Rand
	dir      uint64
	from, to *ucp.Worker
	ep       ucp.Endpoint
	both     []*order // the two directions
	// direct: the test's goroutine drives both workers, so that nothing moves while it
	// looks, and the target can be driven alone.
	direct bool

	at      int
	begins  []int // positions at which epochs began
	known   int   // what was posted before has taken effect
	places  []*place
	last    *place // used last
	words   []*place
	tags    tags
	ams     ams
	pending []posted
	trace   [64]string
}

// posted is an operation that has not ended.
type posted struct {
	r interface{ Done() bool }
	// end holds how it ended to the model.
	end  func()
	at   int
	name string
}

// orderUnder makes a case.
func orderUnder(s settings) func(*testing.T, *Pair) {
	return func(t *testing.T, p *Pair) {
		f := p.Factory
		f.Env = slices.Concat(f.Env, s.env)
		seeds, steps := uint64(2), scaled(5000)
		switch {
		case os.Getenv("GOUCX_TEST_LONG") != "":
			seeds, steps = 20, 20_000
		case s.seldom:
			seeds, steps = 1, scaled(2500)
		}
		if p.mode == ucp.ThreadMulti {
			steps /= 3 // each look at what others have done takes a change of threads
		}
		for seed := range seeds {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runOrder(t, NewPair(t, f, p.mode), s, seed, steps) })
		}
	}
}

// runOrder runs steps operations between the workers of p, in both directions.
func runOrder(t *testing.T, p *Pair, s settings, seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, 121))
	both := []*order{newOrder(t, p, s, r, 1), newOrder(t, p, s, r, 2)}
	both[0].both, both[1].both = both, both
	driven, most := 1, 1
	for i := range steps {
		if i%100 == 0 {
			driven, most = []int{1, 3, 10, 60}[r.IntN(4)], []int{8, 50, 250}[r.IntN(3)]
		}
		o := both[r.IntN(2)]
		o.step()
		if r.IntN(driven) == 0 {
			o.drive()
		}
		for _, o := range both {
			if len(o.pending) > most || o.tags.bytes > 4<<20 {
				o.settle(most / 2)
			}
		}
	}
	for _, o := range both {
		o.settle(0)
		o.endClass()
		o.flushAll()
		for len(o.tags.receives) > 0 {
			o.dropReceive()
		}
		require.Equal(t, len(o.ams.sent), int(o.ams.next))
	}
}

func newOrder(t *testing.T, p *Pair, s settings, r *rand.Rand, dir uint64) *order {
	o := &order{settings: s, t: t, p: p, r: r, dir: dir, from: p.A, to: p.B, ep: p.AB, direct: p.mode == ucp.ThreadSingle, begins: []int{0}}
	if dir == 2 {
		o.from, o.to, o.ep = p.B, p.A, p.BA
	}
	t.Cleanup(func() {
		if t.Failed() {
			for i := range o.trace {
				if line := o.trace[(o.at+i)%len(o.trace)]; line != "" {
					t.Logf("direction %d: %s", dir, line)
				}
			}
		}
	})
	own, err := p.Context.Allocate(layout(), ucp.MemConfig{})
	require.NoError(t, err)
	o.lay("allocated memory", own)
	registered, err := p.Context.Register(make([]byte, layout()), ucp.MemConfig{})
	require.NoError(t, err)
	o.lay("registered memory", registered)
	o.handle()
	return o
}

// epoch is the number of the last epoch that began.
func (o *order) epoch() int { return len(o.begins) - 1 }

// begin begins an epoch.
func (o *order) begin() {
	o.begins = append(o.begins, o.at)
	for _, pl := range o.places {
		pl.use = useNone
	}
}

// post notes an operation that was posted.
func (o *order) post(r interface{ Done() bool }, name string, n int, end func()) {
	o.trace[o.at%len(o.trace)] = fmt.Sprintf("%d, epoch %d: %s of %d bytes", o.at, o.epoch(), name, n)
	o.pending = append(o.pending, posted{r: r, end: end, at: o.at, name: name})
	o.at++
}

// step does any one thing.
func (o *order) step() {
	switch k := o.r.IntN(1000); {
	case k < 200:
		o.send(false)
	case k < 320:
		o.sendAM()
	case k < 460:
		o.receive()
	case k < 580:
		o.put()
	case k < 670:
		o.get()
	case k < 790:
		o.atomic()
	case k < 870:
		o.fence()
	case k < 880:
		o.flush()
	case k < 883:
		o.flushAll()
	case k < 886:
		o.flushBefore()
	case k < 913:
		o.send(true)
	case k < 933:
		o.cancel()
	case k < 950:
		o.receiveLoose()
	case k < 960:
		o.dropReceive()
	default:
		o.fetch()
	}
}

func (o *order) fence() {
	if o.r.IntN(4) == 0 {
		o.p.fenceOf(o.from)
	} else {
		o.ep.Fence()
	}
	o.begin()
	o.trace[o.at%len(o.trace)] = fmt.Sprintf("%d: fence", o.at)
	o.at++
}

// workerFlush covers other endpoints too, so it may end after a later flush of this one.
const workerFlush = "flush of the worker"

// flush posts any flush.
func (o *order) flush() ucp.Request {
	if o.r.IntN(4) == 0 {
		return o.flushOf(o.p.flushOf(o.from), workerFlush)
	}
	return o.flushOf(o.ep.Flush(), "flush")
}

// flushOf notes a flush. When it ends everything that was posted before has ended and
// is there.
func (o *order) flushOf(r ucp.Request, name string) ucp.Request {
	at := o.at
	o.post(r, name, 0, func() {
		require.NoError(o.t, r.Err())
		for _, x := range o.pending {
			if x.at < at && x.name != workerFlush && !x.r.Done() {
				o.fail("the flush posted at %d has ended before %s posted at %d: %v", at, x.name, x.at, x.r)
			}
		}
		o.shows(at, "a flush has ended")
		o.arrived(at)
	})
	return r
}

// flushBefore waits for a flush while what is posted after it is not received.
func (o *order) flushBefore() {
	for _, x := range o.both {
		x.receiveAll()
	}
	r := o.flushOf(o.ep.Flush(), "flush")
	for range o.r.IntN(10) {
		o.send(false)
	}
	for !r.Done() {
		for _, x := range o.both {
			for len(x.ams.kept) > 0 {
				x.fetch()
			}
		}
		o.drive()
		o.inTime("a flush before sends that are not received")
	}
}

// flushAll waits for a flush, and looks at all of the target's memory.
func (o *order) flushAll() {
	o.settle(0)
	r := o.flush()
	for !r.Done() {
		o.help()
		o.inTime("a flush")
	}
	o.look()
	require.Empty(o.t, o.pending, "operations that were flushed")
	o.begin()
	for _, pl := range o.places {
		o.holds(pl, o.at, "everything was flushed")
		pl.forget()
		if got := pl.m.Bytes()[pl.off:][:pl.n]; string(got) != string(pl.content(pl.writes[0])) {
			o.pin(pl)
		}
	}
}

// pin puts to a place whose content depends on the order of puts without a fence, so
// that one write explains it.
func (o *order) pin(pl *place) {
	w := write{at: o.at, epoch: o.epoch(), v: o.r.Uint64()}
	if pl.form == formHalf {
		w.v = uint64(uint32(w.v))
	}
	data := pl.content(w)
	require.NoError(o.t, o.p.Wait(pl.k.Put(data, uint64(pl.off))))
	pl.writes, pl.use = append(pl.writes, w), usePut
	o.at++
}

// drive drives the workers, one of them or both, and looks at what has become of what.
func (o *order) drive() {
	for range 1 + o.r.IntN(3) {
		switch k := o.r.IntN(4); {
		case !o.direct || k < 2:
			o.p.Progress()
		case k == 2:
			o.to.Progress()
		default:
			o.from.Progress()
		}
		for _, x := range o.both {
			x.look()
		}
	}
}

// help receives what was sent, and drives.
func (o *order) help() {
	for _, x := range o.both {
		x.receiveAll()
		for len(x.ams.kept) > 0 {
			x.fetch()
		}
	}
	o.drive()
}

// look holds everything that has ended, and what can be seen, to the model.
func (o *order) look() {
	o.lookAMs()
	o.lookReceives()
	o.watch()
	o.pending = slices.DeleteFunc(o.pending, func(x posted) bool {
		if !x.r.Done() {
			return false
		}
		x.end()
		return true
	})
}

// settle drives until no more than most operations have not ended, and where that is
// none, until everything was received.
func (o *order) settle(most int) {
	for len(o.pending) > most || most == 0 && o.receives() {
		o.help()
		o.inTime("operations")
	}
}

// receives reports whether a message was sent and not received.
func (o *order) receives() bool {
	return int(o.ams.next) < len(o.ams.sent) || len(o.ams.kept)+len(o.ams.recvs) > 0 ||
		slices.ContainsFunc(o.tags.receives, func(v *received) bool { return v.got != nil })
}

func (o *order) inTime(what string) {
	if o.p.deadline.Err() != nil {
		names := []string{}
		for _, x := range o.pending[:min(len(o.pending), 8)] {
			names = append(names, fmt.Sprintf("%s at %d", x.name, x.at))
		}
		o.fail("waited too long for %s; under way: %v", what, names)
	}
}

func (o *order) fail(format string, args ...any) {
	o.t.Helper()
	require.FailNow(o.t, "order", "direction %d, operation %d of epoch %d: %s", o.dir, o.at, o.epoch(), fmt.Sprintf(format, args...))
}

func (w write) String() string {
	return fmt.Sprintf("the write posted at %d in epoch %d", w.at, w.epoch)
}

func (pl *place) String() string {
	return fmt.Sprintf("%d bytes at %d of %s", pl.n, pl.off, pl.name)
}
