//go:build linux

package test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// crowd is members that exchange data, each with each.
type crowd struct {
	t       testing.TB
	members map[uint32]*joined
	next    uint32
}

// joined is a member as the test sees it.
type joined struct {
	*process
	id           uint32
	address, key string
	after        uint64 // rounds that it had done with each
}

func newCrowd(t testing.TB) *crowd { return &crowd{t: t, members: make(map[uint32]*joined)} }

// join starts a member and has it and the others meet.
func (c *crowd) join(change ...func(*exec.Cmd)) *joined {
	c.t.Helper()
	m := &joined{process: start(c.t, "member", change...), id: c.next}
	c.next++
	m.say(m.id)
	m.scan(&m.address, &m.key)
	for _, o := range c.members {
		o.say("with", m.id, m.address, m.key)
		m.say("with", o.id, o.address, o.key)
	}
	c.members[m.id] = m
	return m
}

// advance waits until each member has done n rounds with each other one.
func (c *crowd) advance(n uint64) {
	c.t.Helper()
	for _, m := range c.members {
		for began := time.Now(); ; {
			least, _ := m.count()
			if least >= m.after+n {
				m.after = least
				break
			}
			require.Less(c.t, time.Since(began), 2*patience, "member %d has done %d rounds, and %d before", m.id, least, m.after)
			time.Sleep(time.Millisecond)
		}
	}
}

func (m *joined) count() (least, most uint64) {
	m.t.Helper()
	m.say("count")
	m.scan(&least, &most)
	return least, most
}

// rounds is what a member says of another.
type rounds struct {
	begun, done uint64
	lanes       string
}

// pairs asks a member for all its pairs.
func (m *joined) pairs() map[uint32]rounds {
	m.t.Helper()
	m.say("pairs")
	by := make(map[uint32]rounds)
	for s := range strings.SplitSeq(m.hear(), ",") {
		var id uint32
		var p rounds
		_, err := fmt.Sscan(s, &id, &p.begun, &p.done, &p.lanes)
		require.NoError(m.t, err, s)
		by[id] = p
	}
	return by
}

// settle waits until everybody has done what was begun, and says the rounds.
func (c *crowd) settle() {
	c.t.Helper()
	for _, m := range c.members {
		m.say("rest")
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		all := make(map[uint32]map[uint32]rounds)
		for id, m := range c.members {
			all[id] = m.pairs()
		}
		settled, least, most := true, uint64(math.MaxUint64), uint64(0)
		for a := range c.members {
			for b := range c.members {
				if p := all[a][b]; a != b {
					settled = settled && p.begun == p.done && p.done == all[b][a].done
					least, most = min(least, p.done), max(most, p.done)
				}
			}
		}
		if settled {
			c.t.Logf("%d to %d rounds of each pair", least, most)
			return
		}
		require.Less(c.t, time.Since(began), patience, "%v", all)
	}
}

func (c *crowd) end() {
	c.t.Helper()
	for _, m := range c.members {
		m.say("end")
	}
	for _, m := range c.members {
		m.ends()
	}
}

const (
	hosts   = 4
	perHost = 2
)

// TestHosts: on four hosts with two processes each everybody exchanges data with
// everybody, on links that lose packets, one of which is cut for a while. They
// use shared memory within a host, and the network between, though the hosts have
// the same boot id.
func TestHosts(t *testing.T) {
	if !suitetest.InOwnNetwork(t) {
		return
	}
	t.Setenv(lossEnv, "0.01")
	n := newNetwork(t, hosts)
	for tls, between := range map[string]string{"all": "rc|ud", "self,shm,ud": "ud"} {
		t.Run(tls, func(t *testing.T) {
			t.Setenv(tlsEnv, tls)
			n.t = t
			exchange(t, n, between)
		})
	}
	t.Run("two with a directory", func(t *testing.T) {
		n.t = t
		directory(t, n)
	})
	if long() {
		t.Run("killed", func(t *testing.T) {
			n.t = t
			impatient(t)
			c := newCrowd(t)
			c.killAtRandom(func() { n.on(rand.IntN(hosts), func() { c.join() }) }, time.Minute, patience)
		})
	}
}

// exchange is with one link cut for a while.
func exchange(t *testing.T, n *network, between string) {
	c := newCrowd(t)
	for i := range hosts * perHost {
		n.on(i/perHost, func() { c.join() })
	}
	c.advance(5)
	n.cut(1)
	before := c.members[perHost].pairs()
	time.Sleep(2 * time.Second) // a long cut, for connections that time out after more
	for id, p := range c.members[perHost].pairs() {
		if id/perHost != 1 {
			require.LessOrEqual(t, p.done, before[id].done+1, "rounds with member %d over the cut link", id)
		}
	}
	n.mend(1)
	c.advance(5)
	c.settle()
	c.use(func(a, b uint32) string {
		if a/perHost == b/perHost {
			return `shm/memory`
		}
		return `(` + between + `)/eth0\S*`
	})
	for _, m := range c.members {
		var lost int
		m.say("lost")
		m.scan(&lost)
		require.Positive(t, lost, "packets of member %d", m.id)
	}
	c.end()
}

// directory has two hosts share a directory for the sockets of shared memory, as
// two containers do, and others not.
func directory(t *testing.T, n *network) {
	c := newCrowd(t)
	shared := fmt.Sprint(socketDirEnv, "=", t.TempDir())
	for i := range hosts {
		n.on(i, func() {
			c.join(func(cmd *exec.Cmd) {
				if i < 2 {
					cmd.Env = append(cmd.Env, shared)
				}
			})
		})
	}
	c.advance(5)
	c.settle()
	c.use(func(a, b uint32) string {
		if a < 2 && b < 2 {
			return `shm/memory`
		}
		return `(rc|ud)/eth0\S*`
	})
	c.end()
}

// use requires what each uses towards each: an expression for a lane.
func (c *crowd) use(lane func(a, b uint32) string) {
	c.t.Helper()
	for _, m := range c.members {
		for id, p := range m.pairs() {
			require.Regexp(c.t, `^(\+`+lane(m.id, id)+`)+$`, p.lanes, "member %d to %d", m.id, id)
		}
	}
}

// TestAsleep: eight processes on one host, more than it has processors, sleep
// whenever they wait, and all are woken for what comes.
func TestAsleep(t *testing.T) {
	for _, tls := range []string{"self,shm", "self,rc", "self,ud"} {
		t.Run(tls, func(t *testing.T) {
			t.Setenv(tlsEnv, tls)
			t.Setenv("UCX_NET_DEVICES", "lo")
			c := newCrowd(t)
			for range 8 {
				c.join()
			}
			c.advance(20)
			c.settle()
			c.end()
		})
	}
}

// TestKilledAtRandom: of processes that exchange data some are killed, whatever
// they are doing, and replaced. Each of the others hears of each death once; they
// go on exchanging, and nobody else fails. Where nothing but silence tells of a
// death that takes seconds, which only the long form has.
func TestKilledAtRandom(t *testing.T) {
	during := 3 * time.Second
	if long() {
		during = time.Minute
	}
	c := newCrowd(t)
	c.killAtRandom(func() { c.join() }, during, 10*time.Second) // rc would try for 15 s
	if !long() {
		return
	}
	for _, tls := range []string{"self,rc", "self,ud"} {
		t.Run(tls, func(t *testing.T) {
			t.Setenv(tlsEnv, tls)
			impatient(t)
			c := newCrowd(t)
			c.killAtRandom(func() { c.join() }, time.Minute, patience)
		})
	}
}

// impatient has transports between hosts give a silent peer up after eight seconds
// or so.
func impatient(t *testing.T) {
	for name, value := range map[string]string{
		"RC_TIMEOUT": "1s", "RC_RETRY_COUNT": "5", "RC_KEEPALIVE_INTERVAL": "2s", "RC_CONNECT_TIMEOUT": "8s",
		"UD_TIMEOUT": "8s", "UD_KEEPALIVE_INTERVAL": "2s",
	} {
		t.Setenv("UCX_"+name, value)
	}
}

// killAtRandom kills and replaces members, which join makes; each death is noticed
// within late.
func (c *crowd) killAtRandom(join func(), during, late time.Duration) {
	t := c.t
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 6 {
		join()
	}
	c.advance(3)
	kills, slowest := 0, time.Duration(0)
	for began := time.Now(); time.Since(began) < during; {
		time.Sleep(time.Duration(r.Int64N(int64(200 * time.Millisecond))))
		victims := make(map[string]bool)
		died := time.Now()
		for id, m := range c.members { // in any order
			if len(victims) < 1+kills%2 {
				require.NoError(t, m.cmd.Process.Kill())
				victims[fmt.Sprint("failed ", id)] = true
				delete(c.members, id)
				kills++
			}
		}
		for _, m := range c.members {
			heard := make(map[string]bool)
			for range victims {
				words := strings.SplitN(m.hear(), " ", 3)
				heard[strings.Join(words[:2], " ")] = true
			}
			require.Equal(t, victims, heard, "what member %d says", m.id)
		}
		slowest = max(slowest, time.Since(died))
		for range victims {
			join()
		}
		if kills%5 == 0 {
			c.advance(1)
		}
	}
	require.Positive(t, kills)
	require.Less(t, slowest, late)
	c.advance(3)
	t.Logf("%d processes killed; the last to hear of a death did so %v after it", kills, slowest)
	c.settle()
	c.end()
}
