//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pinned members are stopped, but neither killed nor told to leave: their memory is
// watched.
const pinned = 2

// controller runs the members of one setting.
type controller struct {
	t       *testing.T
	setting setting
	seed    uint64
	rnd     *rand.Rand
	dir     string
	lines   chan said
	members map[uint32]*process // also those that ended
	next    uint32
	slot    uint32 // of the last one started
	due     map[duty]time.Time
	killed  int
	stops   int
	leaves  int
	slowest time.Duration // from the end of a member to the last failure
	ops     uint64
	bytes   uint64
}

// process is a member as the controller sees it.
type process struct {
	line  // as it said ready
	slot  uint32
	cmd   *exec.Cmd
	in    *lineWriter
	log   string
	state processState
	stats []stat
	heard time.Time
	since time.Time // it was killed, or told to leave
	cont  time.Time // it is stopped until then
	ended bool
	told  bool // its state, after a failure
	lost  bool // it met one that was killed
	all   map[uint32]sent
	total uint64
}

type processState uint8

const (
	starting processState = iota
	running
	leaving // posts nothing more
	closing
	dead
	closed
)

// said is a line of a member; nil: it has ended.
type said struct {
	id uint32
	*line
}

// duty is a line that a member owes about another one.
type duty struct {
	id    uint32
	kind  string
	about uint32
}

// run has members exchange data under a setting.
func run(t *testing.T, s setting, during time.Duration) {
	c := &controller{
		t: t, setting: s, seed: *flagSeed, dir: t.TempDir(), lines: make(chan said, 1024),
		members: make(map[uint32]*process), due: make(map[duty]time.Time), next: 1,
	}
	if c.seed == 0 {
		c.seed = rand.Uint64()
	}
	n := *flagMembers
	if n == 0 {
		if n = 4; during >= 30*time.Second {
			n = 6
		}
	}
	t.Logf("%s for %v with %d members: -chaos.seed=%d", s.name, during, n, c.seed)
	c.rnd = rand.New(rand.NewPCG(c.seed, 0))
	defer c.killAll()
	for range n {
		c.start()
	}
	c.until("ready", func() bool { return c.count(starting) == 0 })
	end := time.Now().Add(during)
	for time.Now().Before(end) {
		c.hear(time.Duration(c.rnd.Int64N(int64(400 * time.Millisecond))))
		c.befall()
	}
	c.settle()
	c.judge()
}

// befall does something to a member.
func (c *controller) befall() {
	p := c.members[c.alive()[c.rnd.IntN(len(c.alive()))]]
	mortal := p.ID > pinned && p.cont.IsZero()
	switch pick := c.rnd.IntN(10); {
	case slices.Contains(strings.Split(*flagWithout, ","), "events"):
	case pick < 4 && p.cont.IsZero():
		c.stops++
		c.signal(p, syscall.SIGSTOP)
		p.cont = time.Now().Add(time.Duration(c.rnd.Int64N(int64(500 * time.Millisecond))))
		if p.ID > pinned && c.rnd.IntN(4) == 0 {
			c.kill(p)
		}
	case pick < 7 && mortal:
		c.kill(p)
	case pick < 9 && mortal:
		c.leave(p)
	}
}

// kill kills a member and starts another one.
func (c *controller) kill(p *process) {
	c.killed++
	c.signal(p, syscall.SIGKILL)
	p.state, p.since, p.cont = dead, time.Now(), time.Time{}
	c.forget(p.ID)
	for id, o := range c.members {
		if o.state == running {
			c.tell(o, line{Kind: "dead", ID: p.ID})
			c.owe(id, "parted", p.ID)
		}
		o.lost = o.lost || o.state != starting
	}
	c.start()
}

// leave has a member close in order.
func (c *controller) leave(p *process) {
	c.leaves++
	p.state, p.since = leaving, time.Now()
	c.tell(p, line{Kind: "rest"})
	c.forget(p.ID)
	c.owe(p.ID, "rested", 0)
	c.start()
}

func (c *controller) owe(id uint32, kind string, about uint32) {
	c.due[duty{id, kind, about}] = time.Now().Add(patience)
}

// forget drops what a member owed of others.
func (c *controller) forget(id uint32) {
	for d := range c.due {
		if d.id == id {
			delete(c.due, d)
		}
	}
}

// alive lists the members that run, in order.
func (c *controller) alive() (ids []uint32) {
	for id, p := range c.members {
		if p.state == running {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (c *controller) count(s processState) (n int) {
	for _, p := range c.members {
		if p.state == s {
			n++
		}
	}
	return n
}

// start starts a member; it meets the others when it is ready.
func (c *controller) start() {
	id := c.next
	c.next++
	for c.slot = (c.slot + 1) % numSlots; c.slotInUse(); c.slot = (c.slot + 1) % numSlots {
	}
	config, err := json.Marshal(memberConfig{Seed: c.seed, ID: id, Slot: c.slot, Drive: drive(c.rnd.IntN(int(numDrives))), Without: strings.Split(*flagWithout, ",")})
	require.NoError(c.t, err)
	p := &process{cmd: exec.Command("/proc/self/exe"), log: filepath.Join(c.dir, fmt.Sprint(id)), heard: time.Now()}
	p.ID, p.slot = id, c.slot
	p.cmd.Env = append(os.Environ(), memberEnv+"="+string(config), "GORACE=halt_on_error=1", "GOTRACEBACK=all")
	for k, v := range c.setting.env {
		p.cmd.Env = append(p.cmd.Env, k+"="+v)
	}
	log, err := os.Create(p.log)
	require.NoError(c.t, err)
	defer log.Close()
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := p.cmd.StdinPipe()
	require.NoError(c.t, err)
	p.in = newLineWriter(in)
	out, err := p.cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, p.cmd.Start())
	c.members[id] = p
	go c.listen(p, out)
}

// slotInUse reports whether a member that still may access it has slot c.slot.
func (c *controller) slotInUse() bool {
	for _, p := range c.members {
		if p.slot == c.slot && p.state != dead && p.state != closed {
			return true
		}
	}
	return false
}

// listen passes on what a member says, and that it has ended.
func (c *controller) listen(p *process, out io.Reader) {
	readLines(out, func(l line) { c.lines <- said{p.ID, &l} })
	_ = p.cmd.Wait() // the state tells
	c.lines <- said{p.ID, nil}
}

func (c *controller) tell(p *process, l line) {
	_ = p.in.write(l) // it may just have been killed
}

func (c *controller) signal(p *process, s syscall.Signal) {
	require.NoError(c.t, p.cmd.Process.Signal(s), "signal to member %d", p.ID)
}

// hear handles what members say for a while, and looks after what is due.
func (c *controller) hear(during time.Duration) {
	for end := time.Now().Add(during); ; {
		wait := min(time.Until(end), 20*time.Millisecond)
		select {
		case s := <-c.lines:
			c.handle(c.members[s.id], s.line)
			continue
		case <-time.After(max(wait, 0)):
		}
		now := time.Now()
		for id, p := range c.members {
			if !p.cont.IsZero() && now.After(p.cont) {
				p.cont, p.heard = time.Time{}, now
				c.signal(p, syscall.SIGCONT)
			}
			if p.state < dead && now.Sub(p.heard) > patience {
				c.fail("member %d is silent", id)
			}
		}
		for d, at := range c.due {
			if now.After(at) {
				c.fail("member %d has not said %s %d within %v", d.id, d.kind, d.about, patience)
			}
		}
		if now.After(end) {
			return
		}
	}
}

// until is hear until cond holds.
func (c *controller) until(what string, cond func() bool) {
	for began := time.Now(); !cond(); c.hear(0) {
		if time.Since(began) > 3*patience {
			c.fail("it is not so that all is %s", what)
		}
	}
}

func (c *controller) handle(p *process, l *line) {
	if l == nil {
		p.ended = true
		if p.state != dead && p.state != closed {
			c.fail("member %d ended by itself: %v", p.ID, p.cmd.ProcessState)
		}
		if p.state == closed && !p.cmd.ProcessState.Success() {
			c.fail("member %d closed and ended with %v", p.ID, p.cmd.ProcessState)
		}
		return
	}
	if p.state == dead {
		return
	}
	p.heard = time.Now()
	switch l.Kind {
	case "ready":
		p.Address, p.Keys, p.state = l.Address, l.Keys, running
		for _, id := range c.alive() {
			if o := c.members[id]; o != p {
				c.tell(o, line{Kind: "with", ID: p.ID, Address: p.Address, Keys: p.Keys})
				c.tell(p, line{Kind: "with", ID: o.ID, Address: o.Address, Keys: o.Keys})
			}
		}
	case "stat":
		p.stats = append(p.stats, l.Stat)
		if !p.stats[0].valid() {
			p.stats = p.stats[1:]
		}
	case "failed":
		if o := c.members[l.ID]; l.ID != 0 && o.state <= running || l.ID == 0 && c.killed == 0 {
			c.fail("member %d says that member %d has failed, though it lives: %s", p.ID, l.ID, l.Text)
		}
	case "gap":
		if c.members[l.ID].state != dead {
			c.fail("member %d misses messages of member %d, which was not killed: %s", p.ID, l.ID, l.Text)
		}
	case "rested":
		c.rested(p, l.All)
	case "parted", "complete":
		delete(c.due, duty{p.ID, l.Kind, l.ID})
		if since := c.members[l.ID].since; l.Kind == "parted" && !since.IsZero() {
			c.slowest = max(c.slowest, time.Since(since))
		}
	case "closed":
		if l.Exposed > 0 && !p.lost {
			c.fail("memory of member %d stays exposed, and no other member was killed", p.ID)
		}
		p.state, p.total = closed, l.Total
		delete(c.due, duty{p.ID, "closed", 0})
	case "anomaly":
		c.fail("member %d: %s", p.ID, l.Text)
	}
}

func (s stat) valid() bool { return s.RSS > 0 }

// rested: a member has posted all that it will. Those to which it sent must receive it.
func (c *controller) rested(p *process, all map[uint32]sent) {
	delete(c.due, duty{p.ID, "rested", 0})
	p.all = all
	kind := "expect"
	if p.state == leaving {
		kind = "left"
	}
	for id, n := range all {
		if o := c.members[id]; o.state == running {
			c.tell(o, line{Kind: kind, ID: p.ID, Sent: n})
			c.owe(id, "complete", p.ID)
			if kind == "left" {
				c.owe(id, "parted", p.ID)
			}
		}
	}
	if p.state == leaving {
		c.finish(p, "leaves")
	}
}

func (c *controller) finish(p *process, how string) {
	p.state = closing
	c.tell(p, line{Kind: "finish", Text: how})
	c.owe(p.ID, "closed", 0)
}

// settle has all members end what they have begun, requires that everything has
// arrived, and has them close.
func (c *controller) settle() {
	c.until("ready", func() bool { return c.count(starting) == 0 })
	c.until("parted", func() bool { return len(c.due) == 0 })
	for _, id := range c.alive() {
		c.tell(c.members[id], line{Kind: "rest"})
		c.owe(id, "rested", 0)
	}
	c.until("complete", func() bool { return len(c.due) == 0 })
	alive := c.alive()
	for _, id := range alive {
		c.finish(c.members[id], "")
	}
	c.until("closed", func() bool { return len(c.due) == 0 })
	for _, id := range alive {
		total := uint64(0)
		for _, p := range c.members {
			total += p.all[id].Shared
		}
		p := c.members[id]
		if p.total < total || p.total > total && !p.lost {
			c.fail("the shared word of member %d is %d, and %d were added", id, p.total, total)
		}
	}
}

// judge looks at the memory of the members that lived all the time.
func (c *controller) judge() {
	var slow stat
	for id, p := range c.members {
		if len(p.stats) > 0 {
			last := p.stats[len(p.stats)-1]
			c.ops += last.Ops
			c.bytes += last.Bytes
			if last.Slowest > slow.Slowest {
				slow = last
			}
		}
		if p.state != closed || id > pinned {
			continue
		}
		// The first half is the warm-up.
		half := len(p.stats) / 2
		peak := func(s []stat) (rss, heap uint64, fds, goroutines int) {
			for _, s := range s {
				rss, heap, fds, goroutines = max(rss, s.RSS), max(heap, s.Heap), max(fds, s.FDs), max(goroutines, s.Goroutines)
			}
			return
		}
		rss, heap, fds, goroutines := peak(p.stats[:half])
		rss2, heap2, fds2, goroutines2 := peak(p.stats[half:])
		text := fmt.Sprintf("member %d: resident %d and then %d MB, heap %d and then %d MB, descriptors %d and then %d, goroutines %d and then %d",
			id, rss>>20, rss2>>20, heap>>20, heap2>>20, fds, fds2, goroutines, goroutines2)
		c.t.Log(text)
		if len(p.stats) >= 60 && (rss2 > rss+rss/4+32<<20 || heap2 > heap+heap/4+16<<20 || fds2 > fds+fds/4+16 || goroutines2 > goroutines+16) {
			c.fail("growth: %s", text)
		}
	}
	files, err := os.ReadDir("/dev/shm")
	require.NoError(c.t, err)
	for _, f := range files {
		require.NotRegexp(c.t, "goucx-[^t]", f.Name(), "left in /dev/shm")
	}
	c.t.Logf("%d operations, %d MB; %d killed, %d stopped, %d left; the last to close its endpoints to one that ended did so after %.1f s; slowest: %s, %.1f s",
		c.ops, c.bytes>>20, c.killed, c.stops, c.leaves, c.slowest.Seconds(), slow.Slow, slow.Slowest)
}

// fail prints an anomaly with the state of all members, and ends the test.
func (c *controller) fail(format string, a ...any) {
	c.t.Errorf(format, a...)
	for _, p := range c.members {
		if p.state < dead {
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
			c.tell(p, line{Kind: "dump"})
		}
	}
	c.collect(2 * time.Second)
	for _, p := range c.members {
		if p.state < dead && !p.told {
			_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it prints its goroutines
		}
	}
	c.collect(time.Second)
	for id, p := range c.members {
		if b, err := os.ReadFile(p.log); err == nil && len(b) > 0 && p.state != dead {
			c.t.Logf("standard error of member %d:\n%s", id, b)
		}
	}
	c.t.Fatalf("again: go test ./test/chaos -run 'TestChaos/%s$' -chaos.seed=%d -chaos.time=1m", c.setting.name, c.seed)
}

// collect prints the states that members tell.
func (c *controller) collect(during time.Duration) {
	for end := time.After(during); ; {
		select {
		case s := <-c.lines:
			switch p := c.members[s.id]; {
			case s.line == nil:
				p.ended = true
			case s.Kind == "state" || s.Kind == "anomaly":
				p.told = true
				c.t.Logf("%s of member %d: %s", s.Kind, s.id, s.Text)
			}
		case <-end:
			return
		}
	}
}

// killAll ends what still runs.
func (c *controller) killAll() {
	for _, p := range c.members {
		if p.state < dead {
			_ = p.cmd.Process.Kill()
		}
	}
	for end := time.After(patience); ; {
		left := 0
		for _, p := range c.members {
			if !p.ended {
				left++
			}
		}
		if left == 0 {
			return
		}
		select {
		case s := <-c.lines:
			if s.line == nil {
				c.members[s.id].ended = true
			}
		case <-end:
			c.t.Errorf("%d killed processes do not end", left)
			return
		}
	}
}
