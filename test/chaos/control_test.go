//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

// pinned members are stopped, but neither killed nor closed early: the report compares
// their use of memory.
const pinned = 2

// crowd is the maximum number of members beyond the target: those that leave.
const crowd = 3

// controller runs the members of one setting.
type controller struct {
	t       *testing.T
	clock   *clock
	setting setting
	during  time.Duration
	target  int // members that run
	seed    uint64
	rnd     *rand.Rand
	dir     string
	lines   chan said
	members map[uint32]*process // also those that ended
	next    uint32
	slot    uint32                 // of the last one started
	due     map[duty]time.Duration // by the member's clock
	found   []string               // anomalies
	states  map[uint32]string      // of members, after an anomaly
	killed  int
	stops   int
	leaves  int
	slowest time.Duration // from the end of a member to the last failure
}

// process is the controller's record of a member.
type process struct {
	line  // its ready line
	slot  uint32
	cmd   *exec.Cmd
	in    *lineWriter
	log   string
	state processState
	stats []stat
	clock time.Duration // its own, from its last stat line
	heard time.Duration // by the controller's clock
	since time.Time     // it was killed, or began to leave
	cont  time.Time     // it is stopped until then
	ended bool
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

// said is a line from a member; nil: the process has ended.
type said struct {
	id uint32
	*line
}

// duty is a line that a member must send about another one.
type duty struct {
	id    uint32
	kind  string
	about uint32
}

// run has members exchange data under a setting.
func run(t *testing.T, clock *clock, s setting, during time.Duration) {
	c := &controller{
		t: t, clock: clock, setting: s, during: during, target: *flagMembers, seed: *flagSeed, dir: t.TempDir(), lines: make(chan said, 1024),
		members: make(map[uint32]*process), due: make(map[duty]time.Duration), states: make(map[uint32]string), next: 1,
	}
	if c.seed == 0 {
		c.seed = rand.Uint64()
	}
	if c.target == 0 {
		if c.target = 4; during >= 30*time.Second {
			c.target = 6
		}
	}
	t.Logf("%s for %v with %d members: -chaos.seed=%d", s.name, during, c.target, c.seed)
	c.rnd = rand.New(rand.NewPCG(c.seed, 0))
	defer c.killAll()
	for range c.target {
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

// befall stops, kills or closes a random member.
func (c *controller) befall() {
	p := c.members[c.alive()[c.rnd.IntN(len(c.alive()))]]
	// On a slow machine members leave more slowly than new ones start.
	crowded := c.count(starting)+c.count(running)+c.count(leaving)+c.count(closing) >= c.target+crowd
	mortal := p.ID > pinned && p.cont.IsZero() && !crowded
	switch pick := c.rnd.IntN(10); {
	case slices.Contains(strings.Split(*flagWithout, ","), "events"):
	case pick < 4 && p.cont.IsZero():
		c.stops++
		c.signal(p, syscall.SIGSTOP)
		p.cont = time.Now().Add(time.Duration(c.rnd.Int64N(int64(500 * time.Millisecond))))
		if p.ID > pinned && c.rnd.IntN(4) == 0 && !crowded {
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
	// A member reports an overdue request itself, and first, with more detail.
	c.due[duty{id, kind, about}] = c.members[id].clock + patience + slack
}

// forget drops the duties of a member.
func (c *controller) forget(id uint32) {
	for d := range c.due {
		if d.id == id {
			delete(c.due, d)
		}
	}
}

// ids lists all members, also those that have ended, in order.
func (c *controller) ids() []uint32 { return slices.Sorted(maps.Keys(c.members)) }

// alive lists the running members, in order.
func (c *controller) alive() (ids []uint32) {
	for _, id := range c.ids() {
		if c.members[id].state == running {
			ids = append(ids, id)
		}
	}
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

// start starts a member. The others get its address when it is ready.
func (c *controller) start() {
	id := c.next
	c.next++
	for c.slot = (c.slot + 1) % numSlots; c.slotInUse(); c.slot = (c.slot + 1) % numSlots {
	}
	config, err := json.Marshal(memberConfig{Seed: c.seed, Patience: *flagPatience, Fault: *flagFault, ID: id, Slot: c.slot, Drive: drive(c.rnd.IntN(int(numDrives))), Without: strings.Split(*flagWithout, ",")})
	require.NoError(c.t, err)
	p := &process{cmd: exec.Command("/proc/self/exe"), log: filepath.Join(c.dir, fmt.Sprint(id)), heard: c.clock.now()}
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

// listen passes on the lines of a member, and then its end.
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

// hear handles lines of members for a while, resumes stopped members, and checks duties.
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
				p.cont, p.heard = time.Time{}, c.clock.now()
				c.signal(p, syscall.SIGCONT)
			}
			if p.state < dead && c.clock.since(p.heard) > patience {
				c.fail("member %d has written no line for %v", id, patience)
			}
		}
		for d, at := range c.due {
			if c.members[d.id].clock > at {
				c.fail("member %d has not said %s of member %d within %v", d.id, d.kind, d.about, patience)
			}
		}
		if now.After(end) {
			return
		}
	}
}

// until runs hear until cond holds.
func (c *controller) until(what string, cond func() bool) {
	for began := c.clock.now(); !cond(); c.hear(0) {
		if c.clock.since(began) > 5*patience {
			c.fail("not everything is %s within %v", what, 5*patience)
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
	p.heard = c.clock.now()
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
		p.clock = l.Stat.Clock
		p.stats = append(p.stats, l.Stat)
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

// rested handles the line of a member that posts nothing more: those to which it sent
// must receive all of it.
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

// settle waits until all members have ended their requests and received everything, and
// closes them.
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

// killAll kills the processes that still run.
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
