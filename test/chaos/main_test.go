//go:build linux

package chaos

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goucx/goucx/internal/race"
)

var (
	flagTime     = flag.Duration("chaos.time", 0, "how long each setting runs; 0: seconds of a spread of settings, or see -chaos.long")
	flagSeed     = flag.Uint64("chaos.seed", 0, "what the members post and what befalls them; 0: random")
	flagWithout  = flag.String("chaos.without", "", "comma list of operations to leave out, see link_test.go: for finding causes")
	flagLong     = flag.Duration("chaos.long", 3*time.Minute, "with GOUCX_TEST_LONG=1: how long each transport runs, and each variation over all transports together")
	flagFault    = flag.String("chaos.fault", "", "a fault of the members, see fault_test.go")
	flagPatience = flag.Duration("chaos.patience", patience, "how long a request may be in progress: less finds out what is slow")
	flagMembers  = flag.Int("chaos.members", 0, "members at a time; 0: 4, for longer runs 6")
)

func TestMain(m *testing.M) {
	if config := os.Getenv(memberEnv); config != "" {
		runMember(config)
	}
	os.Exit(m.Run())
}

// setting is an environment for the members.
type setting struct {
	name string
	env  map[string]string
	// slow: the transports detect a killed process by time-out only.
	slow bool
}

var transports = []setting{
	{"shm", map[string]string{"UCX_TLS": "self,shm"}, false},
	{"rc", map[string]string{"UCX_TLS": "self,rc"}, true},
	{"ud", map[string]string{"UCX_TLS": "self,ud"}, true},
	{"rcud", map[string]string{"UCX_TLS": "self,rc,ud"}, true},
	{"all", map[string]string{"UCX_TLS": "all"}, false},
}

// detection has transports between hosts give a silent peer up after three seconds or
// so, far more than a member is stopped.
var detection = map[string]string{
	"UCX_RC_TIMEOUT": "250ms", "UCX_RC_RETRY_COUNT": "7", "UCX_RC_KEEPALIVE_INTERVAL": "500ms", "UCX_RC_CONNECT_TIMEOUT": "3s",
	"UCX_UD_TIMEOUT": "3s", "UCX_UD_KEEPALIVE_INTERVAL": "500ms",
	"UCX_NET_DEVICES": "lo",
}

var variations = []setting{
	{name: ""},
	{name: "tiny", env: map[string]string{
		"UCX_SHM_RING_CELLS": "8", "UCX_SHM_RING_SIZE": "4k", "UCX_SHM_RING_MAX_SIZE": "4k",
		"UCX_RC_SEG_SIZE": "512", "UCX_RC_RX_QUEUE_LEN": "32", "UCX_RC_TX_QUEUE_LEN": "16", "UCX_RC_TX_BUFS": "16",
		"UCX_UD_TX_QUEUE_LEN": "32", "UCX_UD_RX_QUEUE_LEN": "64", "UCX_UD_MAX_WINDOW": "4",
		"UCX_SOFT_WINDOW": "4", "UCX_SOFT_MAX_RD_ATOMIC": "1", "UCX_RNDV_OUTSTANDING": "2",
		"UCX_SELF_SEG_SIZE": "64", "UCX_SELF_FIFO_SIZE": "2",
	}},
	{name: "one", env: map[string]string{"UCX_MAX_LIVE_CONNECTIONS": "1"}},
	{name: "rndv0", env: map[string]string{"UCX_RNDV_THRESH": "0"}},
	{name: "rndvinf", env: map[string]string{"UCX_RNDV_THRESH": "inf"}},
	{name: "gogc1", env: map[string]string{"GOGC": "1"}},
	{name: "procs1", env: map[string]string{"GOMAXPROCS": "1"}},
}

// spread is what the short form runs, twenty seconds in all.
var spread = []plan{
	{"shm", 2 * time.Second},
	{"rc", 2 * time.Second},
	{"ud", 2 * time.Second},
	{"rcud", 2 * time.Second},
	{"all", 2 * time.Second},
	{"ud-tiny", 2 * time.Second},
	{"rc-one", 2 * time.Second},
	{"all-rndv0", 2 * time.Second},
	{"rcud-rndvinf-gogc1", 2 * time.Second},
	{"all-one-procs1", 2 * time.Second},
}

// plan is a setting and how long it runs.
type plan struct {
	name   string
	during time.Duration
}

// settingOf combines a transport with any of the variations: "rc-one-procs1".
func settingOf(name string) (s setting) {
	s = setting{name: name, env: map[string]string{}}
	add := func(words map[string]string) {
		maps.Copy(s.env, words)
	}
	add(detection)
	for i, part := range strings.Split(name, "-") {
		table := variations
		if i == 0 {
			table = transports
		}
		for _, v := range table {
			if v.name == part {
				add(v.env)
				s.slow = s.slow || v.slow
			}
		}
	}
	return s
}

// TestChaos runs each setting in turn.
func TestChaos(t *testing.T) {
	clock := newClock()
	for _, p := range plans() {
		t.Run(p.name, func(t *testing.T) { run(t, clock, settingOf(p.name), p.during) })
	}
}

func long() bool { return os.Getenv("GOUCX_TEST_LONG") != "" }

// plans lists what to run: the spread, or each of the transports with each of the
// variations. Variations share the time of a transport. The race detector, which needs
// ten times as long for all, is a variation itself.
func plans() (list []plan) {
	if *flagTime == 0 && !long() {
		return spread
	}
	add := func(name string, during time.Duration) {
		if *flagTime > 0 {
			during = *flagTime
		}
		list = append(list, plan{name, during})
	}
	share := *flagLong / time.Duration(len(transports))
	for _, v := range variations {
		for _, tl := range transports {
			switch {
			case v.name != "" && race.Enabled && *flagTime == 0:
			case v.name != "":
				add(tl.name+"-"+v.name, share)
			case race.Enabled:
				add(tl.name, share)
			default:
				add(tl.name, *flagLong)
			}
		}
	}
	for _, p := range spread { // which combines some
		if *flagTime > 0 && !slices.ContainsFunc(list, func(q plan) bool { return q.name == p.name }) {
			add(p.name, 0)
		}
	}
	return list
}
