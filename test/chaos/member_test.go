//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

const (
	memberEnv = "GOUCX_CHAOS_MEMBER"

	// patience is how long a request, or a turn of a member's goroutine, may take. It
	// is far above what the settings of the test take to detect that a peer has ended.
	// It is measured by a clock, as slack is.
	patience = 40 * time.Second
	// closeTimeout bounds Close and Finish.
	closeTimeout = 20 * time.Second
	// slack is for what must not wait for anybody, on a busy machine.
	slack = 5 * time.Second
)

// drive is how a member progresses its worker.
type drive uint8

const (
	drivePoll  drive = iota // ThreadSingle, Progress in a loop
	driveSleep              // ThreadSingle, sleeps in poll(2) on the event descriptor
	driveWait               // ThreadSingle, waits for requests
	driveRun                // ThreadMulti, another goroutine is in Run
	numDrives
)

// memberConfig comes in memberEnv.
type memberConfig struct {
	Seed     uint64
	ID, Slot uint32
	Drive    drive
	Without  []string // operations
	Patience time.Duration
	Fault    string // see fault_test.go
	// Unordered: active messages may be handled out of order, since the budget for
	// unexpected messages is small.
	Unordered bool
}

type member struct {
	memberConfig
	out  *lineWriter
	in   chan line
	x    *ucp.Context
	w    *ucp.Worker
	mem  [2]*ucp.MemHandle // allocated, registered
	rnd  *rand.Rand
	pool *pool

	links    []*link
	streams  map[uint32]*stream
	expected map[uint32]sent
	pending  []*op // of no link
	any      []*receive
	cancel   []*receive
	taken    []taken
	kept     []event
	check    checker
	hears    time.Time // no receive is posted earlier
	resting  bool
	rested   bool
	passes   uint64
	ops      uint64
	bytes    uint64
	got      uint64  // tag messages
	exposed  int     // pieces of memory that stay pinned
	slowest  float64 // seconds that the slowest operation took
	slow     string  // which one it was

	mu      sync.Mutex // of what callbacks use, too
	events  []event
	ams     map[uint32]uint32 // active messages received, by sender
	amCheck checker           // of the handler

	clock  *clock
	oldest atomic.Int64 // when the oldest request was posted; 0: none
	turn   atomic.Int64 // when this turn of the member's goroutine began; 0: it sleeps
	last   atomic.Pointer[stat]
}

// runMember is a member's process.
func runMember(config string) {
	m := &member{
		out: newLineWriter(os.Stdout), in: make(chan line, 1024), pool: newPool(),
		streams: make(map[uint32]*stream), expected: make(map[uint32]sent), ams: make(map[uint32]uint32), clock: newClock(),
	}
	m.must(json.Unmarshal([]byte(config), &m.memberConfig))
	m.rnd = rand.New(rand.NewPCG(m.Seed, uint64(m.ID)))
	m.open().close() // what the runtime takes once and for good
	m.last.Store(new(stat))
	go readLines(os.Stdin, func(l line) { m.in <- l; m.signal() })
	go m.watch()
	before := m.census()
	m.open()
	var keys []ucp.Key
	for _, h := range m.mem {
		keys = append(keys, h.Key())
	}
	m.must(m.w.HandleAM(amID, m.handleAM))
	m.must(m.w.HandleAM(replyID, m.handleReply))
	ctx, stop := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	if m.Drive == driveRun {
		runs.Go(func() { _ = m.w.Run(ctx) })
	}
	m.say(line{Kind: "ready", Address: m.w.Address(), Keys: keys})
	leaves := m.exchange()
	if !leaves {
		if msg, ok := m.w.TagProbe(0, 0); ok {
			m.anomaly("a message is left: %+v", msg)
		}
	}
	if m.Fault == "leak" {
		_, err := unix.Open(os.DevNull, unix.O_RDONLY, 0)
		m.must(err)
	}
	total := m.mem[0].Load64(0)
	stop()
	runs.Wait()
	began := m.clock.now()
	m.close()
	if d := m.clock.since(began); d > slack {
		m.anomaly("closing took %v", d)
	}
	m.requireBack(before)
	m.say(line{Kind: "closed", Total: total, Exposed: m.exposed})
	os.Exit(0)
}

// open opens context, worker and memory.
func (m *member) open() *member {
	var err error
	m.x, err = goucx.Open(ucp.Config{CloseTimeout: closeTimeout})
	m.must(err)
	mode := ucp.ThreadSingle
	if m.Drive == driveRun {
		mode = ucp.ThreadMulti
	}
	m.w, err = m.x.NewWorker(ucp.WorkerConfig{Mode: mode})
	m.must(err)
	n := slotAt(numSlots)
	m.mem[0], err = m.x.Allocate(n, ucp.MemConfig{})
	m.must(err)
	m.mem[1], err = m.x.Register(make([]byte, n), ucp.MemConfig{})
	m.must(err)
	return m
}

func (m *member) close() {
	if err := m.w.Close(); err != nil && !ended(err) { // peers close, too
		m.anomaly("closing the worker: %v", err)
	}
	for _, h := range m.mem {
		// A peer that was killed within an access leaves the memory pinned.
		if err := h.Close(); errors.Is(err, ucp.ErrBufferExposed) {
			m.exposed++
		} else {
			m.must(err)
		}
	}
	m.must(m.x.Close())
}

// exchange runs until the controller ends it, and reports whether the member leaves
// while others go on.
func (m *member) exchange() (leaves bool) {
	for idle := 0; ; {
		m.turn.Store(int64(m.clock.now()))
		for {
			select {
			case l := <-m.in:
				if l.Kind == "finish" {
					return l.Text == "leaves"
				}
				m.obey(l)
				continue
			default:
			}
			break
		}
		did := m.Drive != driveRun && m.w.Progress() > 0
		did = m.step() || did
		m.passes++
		if did {
			idle = 0
			continue
		}
		if idle++; idle > 20 {
			m.pause()
		}
	}
}

// pause waits for something to do.
func (m *member) pause() {
	switch m.Drive {
	case drivePoll:
		runtime.Gosched()
	case driveSleep:
		if m.w.Arm() != nil {
			return
		}
		fd, err := m.w.EventFD()
		m.must(err)
		m.turn.Store(0)
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			m.must(err)
		}
	default:
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		for _, i := range m.rnd.Perm(len(m.links)) {
			for _, o := range m.links[i].pending {
				if r, ok := o.req.(ucp.Request); ok {
					_ = r.Wait(ctx) // its end is handled when it is reaped
					return
				}
			}
		}
		<-ctx.Done()
	}
}

// step makes one pass over events, receives and links, without waiting.
func (m *member) step() bool {
	now := m.clock.now()
	did := m.drainEvents()
	if time.Now().After(m.hears) {
		did = m.receive() || did
		did = m.takeKept() || did
	}
	for _, l := range m.links {
		did = l.step() || did
	}
	m.links = slices.DeleteFunc(m.links, func(l *link) bool {
		_, expects := m.expected[l.id]
		return l.state == linkParted && now-l.parted > slack && !expects
	})
	open := m.pending
	m.pending = nil
	var rest []*op
	for _, o := range open {
		if !o.req.Done() {
			rest = append(rest, o)
			continue
		}
		did = true
		if err := o.end(); err != nil {
			m.anomaly("%s: %v", o.name, err)
		}
	}
	m.pending = append(rest, m.pending...)
	m.complete()
	if m.Fault == "panic" && m.ID == 1 && m.got > faultAt {
		panic("a member's fault")
	}
	if m.resting && !m.rested && m.quiet() {
		m.rested, did = true, true
		all := make(map[uint32]sent)
		for _, l := range m.links {
			all[l.id] = l.sent
		}
		m.say(line{Kind: "rested", All: all})
	}
	m.note()
	return did
}

// quiet reports whether all that was posted has ended and was flushed.
func (m *member) quiet() bool {
	for _, l := range m.links {
		if len(l.pending) > 0 || l.state == linkOpen && !l.flushed || l.state == linkFailed {
			return false
		}
	}
	return len(m.pending) == 0 && len(m.kept) == 0 && len(m.taken) == 0
}

// note publishes the post time of the oldest request, and the counts, for watch.
func (m *member) note() {
	oldest := int64(0)
	look := func(ops []*op) {
		if len(ops) > 0 && (oldest == 0 || int64(ops[0].posted) < oldest) {
			oldest = int64(ops[0].posted)
		}
	}
	for _, l := range m.links {
		look(l.pending)
	}
	look(m.pending)
	m.oldest.Store(oldest)
	m.last.Store(&stat{Passes: m.passes, Ops: m.ops, Bytes: m.bytes, Pool: m.pool.made, Slowest: m.slowest, Slow: m.slow})
}

func (m *member) post(name string, req interface{ Done() bool }, end func() error) {
	m.pending = append(m.pending, &op{name, noEP, req, end, m.clock.now()})
	m.ops++
}

func (m *member) link(id uint32) *link {
	for _, l := range m.links {
		if l.id == id {
			return l
		}
	}
	return nil
}

func (m *member) obey(l line) {
	switch l.Kind {
	case "with":
		m.newLink(l)
	case "dead", "left":
		if l.Kind == "left" {
			m.expected[l.ID] = l.Sent
		}
		// Tied receives wait for the peer, so its end must be noticed without more.
		if k := m.link(l.ID); k != nil && k.state == linkOpen && m.rnd.IntN(2) == 0 {
			k.flush(mainEP)
			k.send(classTied)
		}
	case "expect":
		m.expected[l.ID] = l.Sent
	case "rest":
		m.resting = true
	case "dump":
		m.say(line{Kind: "state", Text: m.String()})
	default:
		m.anomaly("line %q", l.Kind)
	}
}

// buffer returns n bytes of the pool.
func (m *member) buffer(n int) []byte {
	p, err := m.pool.get(n)
	if err != nil {
		m.anomaly("%v", err)
	}
	return p
}

// release returns a buffer to the pool, unless a peer may still access it.
func (m *member) release(p []byte, err error) {
	if errors.Is(err, ucp.ErrBufferExposed) {
		m.pool.lose(p)
	} else {
		m.pool.put(p)
	}
}

func (m *member) say(l line) {
	if m.out.write(l) != nil {
		os.Exit(1) // the controller is gone
	}
}

func (m *member) signal() {
	if w := m.w; w != nil {
		w.Signal()
	}
}

func (m *member) must(err error) {
	if err != nil {
		m.anomaly("%v", err)
	}
}

// anomaly reports what must not be, and stops. The controller ends the process when it
// has looked at all of them.
func (m *member) anomaly(format string, a ...any) {
	m.say(line{Kind: "anomaly", Text: fmt.Sprintf(format, a...)})
	m.say(line{Kind: "state", Text: m.String() + stacks()})
	select {}
}

func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

// watch reports what the member uses, and that a request is in progress for too long.
func (m *member) watch() {
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for range time.Tick(time.Second) {
		s := *m.last.Load()
		metrics.Read(heap)
		s.Heap, s.Goroutines, s.RSS = heap[0].Value.Uint64(), runtime.NumGoroutine(), residentBytes()
		fds, err := os.ReadDir("/proc/self/fd")
		m.must(err)
		s.FDs = len(fds)
		s.Clock = m.clock.now()
		m.say(line{Kind: "stat", Stat: s})
		for what, t := range map[string]int64{"a request is in progress": m.oldest.Load(), "a call has not returned": m.turn.Load()} {
			if t == 0 || s.Clock-time.Duration(t) < m.Patience {
				continue
			}
			m.say(line{Kind: "anomaly", Text: fmt.Sprintf("%s for %v", what, s.Clock-time.Duration(t))})
			m.say(line{Kind: "state", Text: stacks()})
			return
		}
	}
}

func residentBytes() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	var size, resident uint64
	if _, scanErr := fmt.Sscan(string(b), &size, &resident); err != nil || scanErr != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize())
}

// census is what the process holds of the system.
type census struct {
	descriptors map[string]int // by kind
	segments    int            // mapped
	goroutines  int
}

func (m *member) census() census {
	c := census{descriptors: make(map[string]int), goroutines: runtime.NumGoroutine()}
	fds, err := os.ReadDir("/proc/self/fd")
	m.must(err)
	for _, fd := range fds {
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && !strings.HasPrefix(to, "/proc/") && !strings.HasPrefix(to, "/sys/") { // the runtime's
			kind, _, _ := strings.Cut(to, ":")
			c.descriptors[kind]++
		}
	}
	b, err := os.ReadFile("/proc/self/maps")
	m.must(err)
	c.segments = strings.Count(string(b), "goucx-")
	return c
}

// requireBack waits until the process holds what it held before. Goroutines of the
// runs before may have ended meanwhile.
func (m *member) requireBack(before census) {
	if m.exposed > 0 { // with the table of keys in which the peer is noted
		before.descriptors["/memfd"]++
		before.segments++
	}
	for began := m.clock.now(); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		now := m.census()
		if maps.Equal(now.descriptors, before.descriptors) && now.segments == before.segments && now.goroutines <= before.goroutines {
			return
		}
		if m.clock.since(began) > slack {
			m.anomaly("after Close this process holds %+v, before Open it held %+v", now, before)
		}
	}
}

func (m *member) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "member %d: drive %d, resting %t, rested %t, %d passes, %d kept, %d taken\n", m.ID, m.Drive, m.resting, m.rested, m.passes, len(m.kept), len(m.taken))
	for _, l := range m.links {
		b.WriteString(l.String())
	}
	for _, o := range m.pending {
		fmt.Fprintf(&b, "\t%s\n", m.describe(o))
	}
	for _, r := range m.any {
		fmt.Fprintf(&b, "\tany %v\n", r.req)
	}
	if m.w != nil {
		b.WriteString("\tcounters:")
		for _, c := range m.w.Stats().Snapshot() {
			if c.Value != 0 {
				fmt.Fprintf(&b, " %s %d", c.Name, c.Value)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
