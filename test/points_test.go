//go:build linux

package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucs/cpu"
)

func cpuYield() { cpu.Yield() }

// pointRow has two sides do something in which the first reaches a point.
type pointRow struct {
	point  fault.Point
	nth    uint64
	at     string // what the side that reaches the point does
	across string // what the other does
	env    []string
}

// twoCopies has the data of long messages go through the ring.
var twoCopies = []string{"UCX_SHM_SINGLE_COPY=none"}

var pointRows = []pointRow{
	{fault.Connect, 2, "open, close", "receive any", nil},
	{fault.Accept, 2, "receive any", "open, close", nil},
	{fault.Reserve, 200, "send short", "receive", nil},
	{fault.Reserve, 200, "send bulk", "receive", nil},
	{fault.HalfCopied, 200, "send short", "receive", nil},
	{fault.HalfCopied, 200, "send bulk", "receive", nil},
	{fault.BeforePublish, 200, "send short", "receive", nil},
	{fault.BeforePublish, 200, "send bulk", "receive", nil},
	{fault.AfterPublish, 200, "send short", "receive", nil},
	{fault.AfterPublish, 200, "send bulk", "receive", nil},
	{fault.BeforeMail, 20, "ping", "pong", nil},
	{fault.BeforeMail, 20, "pong", "ping", nil},
	{fault.AfterMail, 20, "ping", "pong", nil},
	{fault.AfterMail, 20, "pong", "ping", nil},
	{fault.AfterPublish, 60, "begin", "answer", nil},
	{fault.AfterPublish, 60, "answer", "begin", nil},
	{fault.Armed, 20, "sleep", "begin", nil},
	{fault.Armed, 20, "answer", "begin", []string{"UCX_SPIN_TIME=0"}},
	{fault.Grow, 1, "flood", "receive late", nil},
	{fault.Unmap, 1, "flood", "receive late", nil},
	{fault.Unmap, 1, "receive late", "flood", nil},
	{fault.Unmap, 2, "alternate", "answer", []string{"UCX_SHM_MAX_PAIRS=1"}},
	{fault.RTS, 3, "send long", "receive", nil},
	{fault.RTR, 3, "receive", "send long", twoCopies},
	{fault.Data, 40, "send long", "receive", twoCopies},
	{fault.LastData, 3, "send long", "receive", twoCopies},
	{fault.Piece, 10, "receive", "send long", nil},
	{fault.Help, 10, "send long", "receive", nil},
	{fault.PieceCopied, 10, "receive", "send long", nil},
	{fault.HelpCopied, 10, "send long", "receive", nil},
	{fault.Piece, 10, "receive mapped", "send mapped", nil},
	{fault.Help, 10, "send mapped", "receive mapped", nil},
	{fault.PieceCopied, 10, "receive mapped", "send mapped", nil},
	{fault.HelpCopied, 10, "send mapped", "receive mapped", nil},
	{fault.Piece, 10, "receive mapped", "send long", nil},
	{fault.Help, 10, "send long", "receive mapped", nil},
	{fault.Piece, 10, "receive", "send mapped", nil},
	{fault.Help, 10, "send mapped", "receive", nil},
	{fault.RTS, 3, "send sync", "receive", nil},
	{fault.RTS, 3, "send am", "receive am", nil},
	{fault.RTR, 3, "receive am", "send am", twoCopies},
	{fault.LastData, 3, "send am", "receive am", twoCopies},
	{fault.Piece, 10, "receive am", "send am", nil},
	{fault.Help, 10, "send am", "receive am", nil},
	{fault.Closing, 5, "open, close", "receive any", nil},
}

// faulty is this test's binary with fault points, built once.
var faulty struct {
	sync.Once
	dir, path string
	err       error
}

func buildFaulty() {
	if faulty.dir, faulty.err = os.MkdirTemp("", "goucx-faulty-"); faulty.err != nil {
		return
	}
	faulty.path = filepath.Join(faulty.dir, "test")
	out, err := exec.Command("go", "test", "-c", "-tags", "faults", "-o", faulty.path, ".").CombinedOutput()
	if err != nil {
		faulty.err = &buildError{string(out), err}
	}
}

func removeFaulty() {
	if faulty.dir != "" {
		_ = os.RemoveAll(faulty.dir) // it lies where temporary files do
	}
}

// TestPoints: a process that dies or stops at any named point harms nobody but
// itself, nor does one whose peer does so while it is there.
func TestPoints(t *testing.T) {
	t.Run("single", points)
	if long() {
		t.Setenv(multiEnv, "1")
		t.Run("multi", points)
	}
	t.Setenv(multiEnv, "")
	t.Setenv(threadsEnv, "1")
	t.Run("threads", points)
}

func points(t *testing.T) {
	faulty.Do(buildFaulty)
	require.NoError(t, faulty.err)
	table, rows := newPointTable(t), 0
	for i, row := range pointRows {
		if os.Getenv(threadsEnv) != "" && !threadsReach(row.point, i) {
			continue
		}
		for _, action := range []string{"KILL", "STOP"} {
			for _, own := range []bool{true, false} {
				name := fmt.Sprintf("%s, %s/%s/%s", row.point, row.at, action, who(own))
				t.Run(name, func(t *testing.T) { table.run(t, row, action, own) })
				rows++
			}
		}
	}
	table.print(t)
	if len(table.lines) < rows || os.Getenv(threadsEnv) != "" {
		return // some failed, or were not asked for
	}
	for p := range fault.NumPoints {
		require.True(t, table.hit[p], "no process was ever at %q", p)
	}
}

// threadsReach reports whether a row of pointRows runs with Threads: in the short form one of six. Requests
// and replies of Threads go by two connections, neither of which alternates, so that none uses a mailbox.
func threadsReach(p fault.Point, row int) bool {
	return p != fault.BeforeMail && p != fault.AfterMail && (long() || row%6 == 0)
}

// who is hit: the process at the point, or its peer while it is there.
func who(own bool) string {
	if own {
		return "at it"
	}
	return "across"
}

// pointTable has what outlives the rows.
type pointTable struct {
	echo  [2]*bystander
	lines []string
	hit   map[fault.Point]bool
}

func newPointTable(t *testing.T) *pointTable {
	return &pointTable{echo: [2]*bystander{newBystander(t), newBystander(t)}, hit: make(map[fault.Point]bool)}
}

// sideProcess is a side as the test sees it.
type sideProcess struct {
	*process
	own         string // address
	descriptors int    // before it met the other
	mappings    int
}

// pair is two sides, of which the first reaches the point.
type pair struct {
	at, across sideProcess
	hits       string
}

func (x *pointTable) start(t *testing.T, row pointRow, action string) *pair {
	p := &pair{hits: filepath.Join(t.TempDir(), "hits")}
	plan := fmt.Sprintf("%s=%s:%d:%s", fault.PlanEnv, row.point, row.nth, action)
	p.at = x.startSide(t, 0, row.at, append(row.env, plan, fault.HitsEnv+"="+p.hits))
	p.across = x.startSide(t, 1, row.across, row.env)
	p.at.say(p.across.own)
	p.across.say(p.at.own)
	for _, s := range []*sideProcess{&p.at, &p.across} {
		s.expect("met")
		s.descriptors, s.mappings = descriptors(t, s.process), len(maps(t, pidOf(s.process), "goucx-"))
	}
	return p
}

func (x *pointTable) startSide(t *testing.T, n int, activity string, env []string) sideProcess {
	s := sideProcess{process: start(t, "side", func(c *exec.Cmd) {
		c.Path = faulty.path
		c.Env = append(c.Env, env...)
	})}
	s.say(activity)
	s.say(x.echo[n].address)
	s.own = s.hear()
	x.echo[n].p.say(s.own)
	x.echo[n].p.expect("answering")
	return s
}

func (x *pointTable) run(t *testing.T, row pointRow, action string, own bool) {
	how := "STOP" // where the other is killed, this one waits at the point for it
	if own {
		how = action
	}
	p := x.start(t, row, how)
	p.across.say("go")
	p.across.expect("posted")
	p.at.say("go")
	victim, survivor := p.at, p.across
	if !own {
		victim, survivor = p.across, p.at
	}
	outcome := "died: "
	if how == "STOP" {
		waitStopped(t, p.at.process)
	}
	if action == "STOP" {
		p.stopped(t, own, victim, survivor)
		outcome = "waited, cancelled, went on, resumed; died: "
	}
	died := p.kill(t, how, own, victim)
	hits, err := fault.ReadHits(p.hits)
	require.NoError(t, err)
	require.GreaterOrEqual(t, hits[row.point], row.nth)
	x.hit[row.point] = true
	reason, late := survivor.ended(t, died)
	fds, segments := survivor.back(t)
	x.lines = append(x.lines, fmt.Sprintf("%-15s %-12s %-5s %-7s %7.1f  %11s  %8s  %s%s", row.point, row.at, action, who(own),
		float64(late.Microseconds())/1000, fds, segments, outcome, reason))
	survivor.say("end")
	survivor.ends()
}

// kill has the victim die, if it did not do so by itself, and gives the time.
func (p *pair) kill(t *testing.T, how string, own bool, victim sideProcess) (died time.Time) {
	if how == "KILL" {
		select {
		case <-victim.gone(t):
		case <-time.After(patience):
			require.Fail(t, "it never came to the point")
		}
		hits, err := os.Stat(p.hits)
		require.NoError(t, err)
		return hits.ModTime() // the last that it did
	}
	died = time.Now()
	victim.kill()
	if !own { // the other stands still until its peer is gone
		died = time.Now()
		p.at.signal(syscall.SIGCONT)
	}
	return died
}

// gone tells when the process has ended.
func (s *sideProcess) gone(t *testing.T) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		defer close(c)
		for line := range s.lines {
			assert.Equal(t, "posted", line)
		}
	}()
	return c
}

// stopped: one stands still at the point, or its peer does; the other waits, can
// cancel, goes on with others, and finds everything in order afterwards.
func (p *pair) stopped(t *testing.T, own bool, victim, survivor sideProcess) {
	if !own {
		victim.signal(syscall.SIGSTOP)
		waitStopped(t, victim.process)
		p.at.signal(syscall.SIGCONT)
	}
	survivor.say("give up")
	survivor.later("gave up")
	survivor.later("went on")
	victim.signal(syscall.SIGCONT)
	survivor.say("resume")
	survivor.later("resumed")
	if !own {
		p.at.signal(syscall.SIGSTOP) // back to where the kill expects it
		waitStopped(t, p.at.process)
	}
}

// later waits for a line and passes over "posted", which may come before it.
func (s *sideProcess) later(line string) {
	s.t.Helper()
	got := s.hear()
	if got == "posted" {
		got = s.hear()
	}
	require.Equal(s.t, line, got)
}

// ended takes what the survivor says of the death and how long after it that was.
func (s *sideProcess) ended(t *testing.T, died time.Time) (reason string, late time.Duration) {
	line := s.hear()
	if line == "posted" {
		line = s.hear()
	}
	var at int64
	require.NoError(t, scanLine(line, new(string), &at), line)
	late = time.Unix(0, at).Sub(died)
	_, reason, _ = strings.Cut(line, fmt.Sprint(at, " "))
	require.NotContains(t, reason, "wrong")
	require.Less(t, late, mostLate, "the last request's end after the death")
	line = s.hear()
	require.True(t, strings.HasPrefix(line, "refused "), line)
	require.NotContains(t, line, "wrong")
	s.expect("closed")
	return reason, max(late, 0)
}

// back waits until the survivor holds what it held before it met the other.
func (s *sideProcess) back(t *testing.T) (fds, segments string) {
	var d, m int
	require.Eventually(t, func() bool {
		d, m = descriptors(t, s.process), len(maps(t, pidOf(s.process), "goucx-"))
		return d <= s.descriptors && m <= s.mappings
	}, patience, 2*time.Millisecond, "descriptors %d before, mappings %d before", s.descriptors, s.mappings)
	return fmt.Sprint(s.descriptors, "→", d), fmt.Sprint(s.mappings, "→", m)
}

// print shows the table.
func (x *pointTable) print(t *testing.T) {
	t.Logf("%-15s %-12s %-5s %-7s %7s  %11s  %8s  %s", "point", "activity", "what", "hit", "ms", "descriptors", "mappings", "outcome")
	for _, line := range x.lines {
		t.Log(line)
	}
}
