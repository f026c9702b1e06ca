//go:build linux

package test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/ucp"
)

// deathTableEnv makes TestDeathTable measure: scripts/death sets it.
const deathTableEnv = "GOUCX_TEST_DEATH_TABLE"

// deathWaits are what waits for a peer, with a request that names it.
var deathWaits = []string{"send", "receive", "sync", "rendezvous", "get", "run"}

// roleMortal is a peer that replies only to its first message.
func roleMortal(p *parent) {
	n := must(newNode(ucp.ThreadSingle, patience))
	m := must(n.x.Allocate(big, ucp.MemConfig{}))
	p.say(n.address(), hex.EncodeToString(m.Key()))
	must(n.w.TagRecv(make([]byte, 8), tagStream, allBits).Wait(context.Background()))
	p.say("connected")
	check(n.w.Run(context.Background()))
}

// roleSurvivor waits for a mortal: it reads its address and key, and what to wait by. It says when
// the wait ended, with the error.
func roleSurvivor(p *parent) {
	var address, key, wait string
	check(scanLine(p.hear(), &address, &key, &wait))
	mode := ucp.ThreadSingle
	if wait == "run" {
		mode = ucp.ThreadMulti
	}
	n := must(newNode(mode, time.Second))
	ctx := context.Background()
	e := must(n.connect(address))
	check(e.TagSendSync(make([]byte, 8), tagStream).Wait(ctx))
	check(e.Flush().Wait(ctx))
	k := must(n.unpack(e, key))
	p.say("waits")
	var err error
	switch wait {
	case "send":
		for err == nil {
			err = e.TagSend(make([]byte, 8), tagNever).Wait(ctx)
			for at := time.Now().Add(10 * time.Millisecond); err == nil && time.Now().Before(at); {
				n.nap(n.w.Progress())
			}
		}
	case "receive":
		_, err = n.w.TagRecv(make([]byte, 8), tagNever, allBits).Tie(e).Wait(ctx)
	case "sync":
		err = e.TagSendSync(make([]byte, 8), tagNever).Wait(ctx)
	case "rendezvous":
		err = e.TagSend(make([]byte, big), tagNever).Wait(ctx)
	case "run": // another goroutine has the progress, and sleeps long, as nothing waits
		go func() { check(n.w.Run(ctx)) }()
		p.hear()
		_, err = n.w.TagRecv(make([]byte, 8), tagNever, allBits).Tie(e).Wait(ctx)
	case "get":
		p.hear() // it would not wait for a live peer
		err = k.Get(make([]byte, big), 0).Wait(ctx)
	}
	p.say(time.Now().UnixNano(), err)
	if !errors.Is(err, ucp.ErrPeerFailed) {
		check(fmt.Errorf("%s ended with %w, want ErrPeerFailed", wait, err))
	}
}

// death is a mortal and a survivor that waits for it.
type death struct {
	mortal, survivor *process
}

// newDeath starts both, on two hosts of n from the first one on, or on this one. Settings are of
// the survivor.
func newDeath(t testing.TB, n *network, first int, tls, wait string, settings ...string) *death {
	t.Helper()
	d := new(death)
	env := func(c *exec.Cmd) {
		c.Env = append(c.Env, append(settings, tlsEnv+"=self,"+tls)...)
		if n == nil {
			c.Env = append(c.Env, "UCX_SOFT_ADDR=127.0.0.1")
		}
	}
	for i, p := range []**process{&d.mortal, &d.survivor} {
		begin := func() { *p = start(t, []string{"mortal", "survivor"}[i], env) }
		if n != nil {
			n.on(first+i, begin)
		} else {
			begin()
		}
	}
	d.survivor.say(d.mortal.hear(), wait)
	d.mortal.expect("connected")
	d.survivor.expect("waits")
	return d
}

// noticed lets the mortal end by end, and returns after how long the survivor's wait ended.
func (d *death) noticed(end func(), atMost time.Duration) (after time.Duration, why string) {
	d.mortal.t.Helper()
	time.Sleep(500 * time.Millisecond) // it waits for long
	began := time.Now()
	end()
	_, _ = fmt.Fprintln(d.survivor.in, "ended") // fails where it has noticed that already, and ended
	select {
	case line, ok := <-d.survivor.lines:
		require.True(d.mortal.t, ok, "the survivor has ended too")
		at, why, _ := strings.Cut(line, " ")
		var ns int64
		require.NoError(d.mortal.t, scanLine(at, &ns))
		return time.Duration(ns - began.UnixNano()), why
	case <-time.After(atMost):
		return atMost, "not noticed"
	}
}

// kill is the end of a process that does not close anything.
func (d *death) kill() { _ = d.mortal.cmd.Process.Kill() }

// TestDeathIsNoticed: a wait for a peer that is killed ends soon, with an error that names the peer,
// whatever kind of request waits. The bounds are those of a busy machine; scripts/death measures.
func TestDeathIsNoticed(t *testing.T) {
	for _, tls := range []string{"shm", "rc", "ud"} {
		for _, wait := range deathWaits {
			if tls == "shm" && wait == "get" {
				continue // the memory of a process that has ended can still be read
			}
			t.Run(tls+"/"+wait, func(t *testing.T) {
				t.Parallel()
				d := newDeath(t, nil, 0, tls, wait)
				after, why := d.noticed(d.kill, 10*time.Second)
				t.Logf("after %v: %s", after, why)
				require.Less(t, after, 10*time.Second)
				d.survivor.ends()
			})
		}
	}
}

// TestDeathIsNoticedFar is TestDeathIsNoticed between two hosts.
func TestDeathIsNoticedFar(t *testing.T) {
	if !suitetest.InOwnNetwork(t) {
		return
	}
	n := newNetwork(t, 4*len(deathWaits)) // a host sends another one few ICMP errors
	for i, tls := range []string{"rc", "ud"} {
		for k, wait := range deathWaits {
			d := newDeath(t, n, 2*(len(deathWaits)*i+k), tls, wait)
			after, why := d.noticed(d.kill, 10*time.Second)
			t.Logf("%s/%s after %v: %s", tls, wait, after, why)
			require.Less(t, after, 10*time.Second)
			d.survivor.ends()
		}
	}
}

// deathEvent is a way in which a peer may end, or be lost.
type deathEvent struct {
	name string
	far  bool // the peer is on another host
	slow bool // so that all waits are measured at once
	end  func(d *death, n *network, host int)
}

var deathEvents = []deathEvent{
	{"process killed, same host", false, false, func(d *death, _ *network, _ int) { d.kill() }},
	{"process killed, other host", true, false, func(d *death, _ *network, _ int) { d.kill() }},
	{"process killed, other host, ICMP filtered", true, true, func(d *death, n *network, host int) {
		n.filterICMP(host)
		d.kill()
	}},
	{"cable cut, or host stopped", true, true, func(_ *death, n *network, host int) { n.cut(host) }},
	{"process stopped, same host", false, true, func(d *death, _ *network, _ int) { _ = d.mortal.cmd.Process.Signal(syscall.SIGSTOP) }},
}

// fastestDeath are the settings with which the end of a peer is noticed soonest.
var fastestDeath = []string{
	"UCX_KEEPALIVE_INTERVAL=100ms", "UCX_RC_TIMEOUT=50ms", "UCX_RC_RETRY_COUNT=3", "UCX_RC_CONNECT_TIMEOUT=500ms", "UCX_UD_TIMEOUT=500ms",
}

// TestDeathTable measures how soon each event is noticed: the table of docs/errors.md. Each time
// is the longest of all ways to wait. The variable of the environment is an expression for the
// names of events.
func TestDeathTable(t *testing.T) {
	words := os.Getenv(deathTableEnv)
	if words == "" {
		t.Skip("scripts/death runs it")
	}
	if !suitetest.InOwnNetwork(t) {
		return
	}
	out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput()
	require.NoError(t, err, "%s", out)
	rows := []string{"| | shm | rc | rc, fastest | ud | ud, fastest |", "|---|---|---|---|---|---|"}
	for _, event := range deathEvents {
		if !regexp.MustCompile(words).MatchString(event.name) {
			continue
		}
		var row strings.Builder
		row.WriteString("| " + event.name + " |")
		for _, c := range []struct {
			tls      string
			settings []string
		}{{"shm", nil}, {"rc", nil}, {"rc", fastestDeath}, {"ud", nil}, {"ud", fastestDeath}} {
			if c.tls == "shm" && (event.far || event.slow) {
				row.WriteString(map[bool]string{true: " |", false: " never |"}[event.far])
				continue
			}
			t.Run(fmt.Sprintf("%s, %s, %d settings", event.name, c.tls, len(c.settings)), func(t *testing.T) {
				row.WriteString(" " + event.measure(t, c.tls, c.settings) + " |")
			})
		}
		rows = append(rows, row.String())
	}
	fmt.Println(strings.Join(rows, "\n"))
}

// measure returns the longest time of all ways to wait.
func (event *deathEvent) measure(t *testing.T, tls string, settings []string) string {
	const atMost = 90 * time.Second
	var n *network
	if event.far {
		n = newNetwork(t, 2*len(deathWaits))
		defer func() { // at once, so that the next network has their names
			n.ip("link del switch")
			for i := range n.hosts {
				n.ip("link del " + port(i))
			}
		}()
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	longest := time.Duration(0)
	for i, wait := range deathWaits {
		if tls == "shm" && wait == "get" {
			continue
		}
		d := newDeath(t, n, 2*i, tls, wait, settings...)
		one := func() {
			after, why := d.noticed(func() { event.end(d, n, 2*i) }, atMost)
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, after)
			t.Logf("%s: %v: %s", wait, after, why)
		}
		if event.slow {
			all.Go(one)
		} else {
			one()
		}
	}
	all.Wait()
	switch {
	case longest == atMost:
		return "not within 90 s"
	case longest < 100*time.Millisecond:
		return fmt.Sprintf("%d ms", longest.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", longest.Seconds())
}

// TestForgedDeath: where each packet to a live peer is answered by a forged ICMP error too, a wait
// for the peer goes on, and is over soon after the peer's true end.
func TestForgedDeath(t *testing.T) {
	if !suitetest.InOwnNetwork(t) {
		return
	}
	n := newNetwork(t, 4)
	for i, tls := range []string{"rc", "ud"} {
		t.Run(tls, func(t *testing.T) {
			d := newDeath(t, n, 2*i, tls, "receive")
			var forgers []*suitetest.Forger
			for _, port := range udpPorts(t, d.mortal) {
				n.on(2*i, func() { forgers = append(forgers, suitetest.ForgeICMP(t, port)) })
			}
			select {
			case line := <-d.survivor.lines:
				t.Fatalf("the wait ended: %s", line)
			case <-time.After(3 * time.Second):
			}
			sent := int32(0)
			for _, f := range forgers {
				sent += f.Sent.Load()
			}
			require.NotZero(t, sent)
			after, why := d.noticed(d.kill, 10*time.Second)
			t.Logf("after %v: %s", after, why)
			require.Less(t, after, 10*time.Second)
		})
	}
}

// udpPorts lists the UDP ports of a process that is alone on its host.
func udpPorts(t *testing.T, p *process) (ports []uint16) {
	b, err := os.ReadFile("/proc/" + pidOf(p) + "/net/udp")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^ *\d+: [0-9A-F]{8}:([0-9A-F]{4}) `).FindAllStringSubmatch(string(b), -1) {
		n, err := strconv.ParseUint(m[1], 16, 16)
		require.NoError(t, err)
		ports = append(ports, uint16(n))
	}
	require.NotEmpty(t, ports)
	return ports
}

// filterICMP lets a host send no ICMP errors.
func (n *network) filterICMP(host int) {
	n.on(host, func() {
		for _, name := range []string{"icmp_msgs_per_sec", "icmp_msgs_burst"} {
			assert.NoError(n.t, os.WriteFile("/proc/sys/net/ipv4/"+name, []byte("0"), 0))
		}
	})
}
