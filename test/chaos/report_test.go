//go:build linux

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
)

// fail reports an anomaly and ends the test. The report is short: the anomalies, the
// first one first, what repeats the run, and the file with the states of all members.
func (c *controller) fail(format string, a ...any) {
	c.found = append(c.found, fmt.Sprintf(format, a...))
	for _, p := range c.members {
		if p.state < dead {
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
			c.tell(p, line{Kind: "dump"})
		}
	}
	c.collect(2*time.Second, func(p *process) bool { return c.states[p.ID] != "" || p.ended })
	for id, p := range c.members {
		if p.state < dead && c.states[id] == "" && !p.ended {
			_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it prints its goroutines
		}
	}
	c.collect(2*time.Second, func(p *process) bool { return c.states[p.ID] != "" || p.ended })
	for id := range c.members {
		if text := c.printed(id); text != "" {
			c.states[id] += fmt.Sprintf("\nstandard error of member %d:\n%s", id, text)
		}
	}
	c.t.Fatal(c.report())
}

// quitted begins what a process prints that was sent SIGQUIT.
const quitted = "SIGQUIT"

// printed is the standard error of a member that was not killed.
func (c *controller) printed(id uint32) string {
	p := c.members[id]
	text, err := os.ReadFile(p.log)
	if err != nil || p.state == dead {
		return ""
	}
	return string(text)
}

// collect takes in anomalies and states until told holds for all running members and
// nothing more comes.
func (c *controller) collect(during time.Duration, told func(p *process) bool) {
	const quiet = 200 * time.Millisecond
	for end := time.Now().Add(during); time.Now().Before(end); {
		select {
		case s := <-c.lines:
			switch {
			case s.line == nil:
				p := c.members[s.id]
				if p.ended = true; p.state != dead && p.state != closed && !strings.HasPrefix(c.printed(s.id), quitted) {
					// Others may have noticed it first.
					c.found = slices.Insert(c.found, 0, fmt.Sprintf("member %d ended by itself: %v", s.id, p.cmd.ProcessState))
				}
			case s.Kind == "closed":
				c.members[s.id].state = closed
			case s.Kind == "state":
				c.states[s.id] += s.Text
			case s.Kind == "anomaly":
				c.found = append(c.found, fmt.Sprintf("member %d: %s", s.id, s.Text))
			}
		case <-time.After(quiet):
			left := 0
			for _, p := range c.members {
				if p.state < dead && !told(p) {
					left++
				}
			}
			if left == 0 {
				return
			}
		}
	}
}

// report writes the states to a file and returns what the log of the test shows.
func (c *controller) report() string {
	var b, states strings.Builder
	fmt.Fprintf(&b, "%d anomalies under the setting %s, seed %d:\n", len(c.found), c.setting.name, c.seed)
	for i, text := range c.found {
		fmt.Fprintf(&b, "%d. %s\n", i+1, text)
		if i == mostAnomalies {
			b.WriteString("...\n")
			break
		}
	}
	for _, id := range c.ids() {
		// What a process prints when it ends, or the race detector, is an anomaly.
		if text := c.printed(id); text != "" && !strings.HasPrefix(text, quitted) {
			lines := strings.SplitAfterN(text, "\n", mostLines+1)
			fmt.Fprintf(&b, "standard error of member %d begins:\n%s", id, strings.Join(lines[:min(len(lines), mostLines)], ""))
			break
		}
	}
	file := filepath.Join(os.TempDir(), fmt.Sprintf("goucx-chaos-%s-%d.txt", c.setting.name, c.seed))
	fmt.Fprintf(&states, "%s", b.String())
	for _, id := range c.ids() {
		if text := c.states[id]; text != "" {
			fmt.Fprintf(&states, "\n--- %s", text)
		}
	}
	if err := os.WriteFile(file, []byte(states.String()), 0o600); err != nil {
		file = err.Error()
	}
	fmt.Fprintf(&b, "again: %s\nstates of all members, with goroutines: %s", c.again(), file)
	return b.String()
}

// What a report shows at most.
const (
	mostAnomalies = 8
	mostLines     = 20 // of what a process printed
)

// again is the command that makes the same choices.
func (c *controller) again() string {
	command := "go test"
	if race.Enabled {
		command += " -race"
	}
	command += fmt.Sprintf(" ./test/chaos -run '^TestChaos$/^%s$' -chaos.seed=%d -chaos.members=%d -chaos.time=%v", c.setting.name, c.seed, c.target, max(c.during, time.Minute))
	if *flagWithout != "" {
		command += " -chaos.without=" + *flagWithout
	}
	return command
}

// judge looks at what the members used that lived all the time, and at what is left
// over, and logs the figures of the run.
func (c *controller) judge() {
	ops, bytes, slow := uint64(0), uint64(0), stat{}
	for _, id := range c.ids() {
		p := c.members[id]
		if len(p.stats) > 0 {
			last := p.stats[len(p.stats)-1]
			ops += last.Ops
			bytes += last.Bytes
			if last.Slowest > slow.Slowest {
				slow = last
			}
		}
		if p.state != closed || id > pinned || len(p.stats) < 8 {
			continue
		}
		var quarters [4]use
		for i, s := range p.stats {
			quarters[i*4/len(p.stats)].add(s)
		}
		text := fmt.Sprintf("use of member %d by quarters of the run: %v", id, quarters)
		c.t.Log(text)
		if what := quarters[3].above(quarters[1]); what != "" && len(p.stats) >= flatSeconds {
			c.fail("%s grows: %s", what, text)
		}
	}
	files, err := os.ReadDir("/dev/shm")
	require.NoError(c.t, err)
	for _, f := range files {
		require.NotRegexp(c.t, "goucx-[^t]", f.Name(), "left in /dev/shm")
	}
	c.t.Logf("%d operations, %d MB; %d killed, %d stopped, %d left; the last to close its endpoints to one that ended did so after %.1f s; slowest: %s, %.1f s",
		ops, bytes>>20, c.killed, c.stops, c.leaves, c.slowest.Seconds(), slow.Slow, slow.Slowest)
}

// flatSeconds is how long a run must take for its memory to be judged.
const flatSeconds = 60

// use is the most that a member used in a quarter of the run, and of its live heap
// beside its own buffers the least: that is what it holds on to.
type use struct {
	resident, heap  uint64
	fds, goroutines int
}

func (u *use) add(s stat) {
	heap := s.Heap - min(s.Heap, s.Pool)
	if u.resident == 0 {
		u.heap = heap
	}
	u.resident, u.heap, u.fds, u.goroutines = max(u.resident, s.RSS), min(u.heap, heap), max(u.fds, s.FDs), max(u.goroutines, s.Goroutines)
}

func (u use) String() string {
	return fmt.Sprintf("%d MB resident, %.1f MB heap, %d descriptors, %d goroutines", u.resident>>20, float64(u.heap)/(1<<20), u.fds, u.goroutines)
}

// above returns what of u is above what it was before, with room for chance.
func (u use) above(before use) string {
	switch {
	case u.heap > before.heap+before.heap/4+4<<20:
		return "the heap"
	case u.resident > before.resident+before.resident/4+32<<20:
		return "resident memory"
	case u.fds > before.fds+before.fds/4+16:
		return "the number of descriptors"
	case u.goroutines > before.goroutines+16:
		return "the number of goroutines"
	}
	return ""
}
