//go:build linux

package test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
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
var deathWaits = []string{"send", "receive", "sync", "rendezvous", "get"}

// roleMortal is a peer that answers nothing but its first message.
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
	n := must(newNode(ucp.ThreadSingle, time.Second))
	var address, key, wait string
	check(scanLine(p.hear(), &address, &key, &wait))
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
	d.survivor.say("ended")
	select {
	case line, ok := <-d.survivor.lines:
		require.True(d.mortal.t, ok, "the survivor has ended too")
		at, why, _ := strings.Cut(line, " ")
		var ns int64
		require.NoError(d.mortal.t, scanLine(at, &ns))
		return time.Duration(ns - began.UnixNano()), why
	case <-time.After(atMost):
		d.mortal.t.Errorf("the wait did not end within %v", atMost)
		return atMost, ""
	}
}

// kill is the end of a process that does not close anything.
func (d *death) kill() { _ = d.mortal.cmd.Process.Kill() }

// TestDeathIsNoticed: who waits for a peer that is killed learns that soon, by name, whatever it
// waits with. The bounds are those of a busy machine; scripts/death measures.
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
			d.survivor.ends()
		}
	}
}

// TestDeathTable measures after how long each way in which a peer may end is noticed: the table of
// docs/errors.md. Each time is the longest of all ways to wait.
func TestDeathTable(t *testing.T) {
	if os.Getenv(deathTableEnv) == "" {
		t.Skip("scripts/death runs it")
	}
	if !suitetest.InOwnNetwork(t) {
		return
	}
	near := []string{"ip", "link", "set", "lo", "up"}
	out, err := exec.Command(near[0], near[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	fastest := []string{
		"UCX_KEEPALIVE_INTERVAL=100ms", "UCX_RC_TIMEOUT=50ms", "UCX_RC_RETRY_COUNT=3", "UCX_RC_CONNECT_TIMEOUT=500ms", "UCX_UD_TIMEOUT=500ms",
	}
	n := newNetwork(t, 2)
	var rows []string
	for _, event := range []struct {
		name string
		far  bool
		tls  []string
		end  func(d *death)
		undo func(d *death)
	}{
		{"process killed, same host", false, []string{"shm", "rc", "ud"}, (*death).kill, nil},
		{"process killed, other host", true, []string{"rc", "ud"}, (*death).kill, nil},
		{"the same, ICMP filtered", true, []string{"rc", "ud"}, func(d *death) { n.filterICMP(0, true); d.kill() }, func(*death) { n.filterICMP(0, false) }},
		{"cable cut, or host stopped", true, []string{"rc", "ud"}, func(*death) { n.cut(0) }, func(*death) { n.mend(0) }},
		{"process stopped, same host", false, []string{"shm", "rc", "ud"}, func(d *death) { d.mortal.signal(syscall.SIGSTOP) }, nil},
	} {
		row := event.name
		for _, settings := range [][]string{nil, fastest} {
			for _, tls := range []string{"shm", "rc", "ud"} {
				if !slices.Contains(event.tls, tls) {
					row += " |"
					continue
				}
				longest := time.Duration(0)
				for _, wait := range deathWaits {
					if tls == "shm" && (wait == "get" || strings.Contains(event.name, "stopped")) {
						continue
					}
					net := n
					if !event.far {
						net = nil
					}
					d := newDeath(t, net, 0, tls, wait, settings...)
					after, why := d.noticed(func() { event.end(d) }, time.Minute+30*time.Second)
					if event.undo != nil {
						event.undo(d)
					}
					t.Logf("%s, %s, %s, %v: %v: %s", event.name, tls, wait, settings, after, why)
					longest = max(longest, after)
					d.mortal.kill()
					d.survivor.kill()
				}
				row += fmt.Sprintf(" | %.2g s", longest.Seconds())
			}
		}
		rows = append(rows, "| "+row+" |")
		t.Log(rows[len(rows)-1])
	}
	fmt.Println(strings.Join(rows, "\n"))
}

// filterICMP lets a host send no ICMP errors.
func (n *network) filterICMP(host int, on bool) {
	n.t.Helper()
	values := map[string]string{"icmp_msgs_per_sec": "1000", "icmp_msgs_burst": "50"}
	if on {
		values = map[string]string{"icmp_msgs_per_sec": "0", "icmp_msgs_burst": "0"}
	}
	n.on(host, func() {
		for name, v := range values {
			assert.NoError(n.t, os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(v), 0))
		}
	})
}
