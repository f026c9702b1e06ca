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
)

var (
	flagTime    = flag.Duration("chaos.time", 0, "how long each setting runs; 0: 4s of a spread of settings, with GOUCX_TEST_LONG=1 3m of all")
	flagSeed    = flag.Uint64("chaos.seed", 0, "what the members post and what befalls them; 0: random")
	flagWithout = flag.String("chaos.without", "", "comma list of operations to leave out, see link_test.go: for finding causes")
	flagMembers = flag.Int("chaos.members", 0, "members at a time; 0: 4, for longer runs 6")
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
	// slow: only silence tells that a process was killed.
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

// spread is what the short form runs.
const spread = "shm rc ud rcud all shm-tiny rc-tiny ud-one all-rndv0 all-rndvinf-gogc1 rc-one-procs1"

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
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			during := *flagTime
			switch _, varied, _ := strings.Cut(name, "-"); {
			case during > 0:
			case !long():
				during = 4 * time.Second
			case varied == "":
				during = 3 * time.Minute
			default: // three minutes for all transports together
				during = 3 * time.Minute / time.Duration(len(transports))
			}
			run(t, settingOf(name), during)
		})
	}
}

func long() bool { return os.Getenv("GOUCX_TEST_LONG") != "" }

// names lists the settings to run: the spread, or with each of the transports each
// of the variations.
func names() (list []string) {
	if *flagTime > 0 || long() {
		for _, v := range variations {
			for _, tl := range transports {
				list = append(list, strings.TrimSuffix(tl.name+"-"+v.name, "-"))
			}
		}
	}
	for name := range strings.FieldsSeq(spread) {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}
