package config

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The rows of the tests: one of each kind of trouble.
var (
	testTLS   = New("TLS", "all", ListOf("transports"), "", "Transports allowed.")
	testSeg   = New("SEG_SIZE", "8k", Size(64, 1<<30), "bytes", "Size of a segment.")
	testCells = New("SHM_RING_CELLS", "32", Int(2, 65536), "cells", "Cells of a ring.")
	testQueue = New("RC_VERBS_TX_QUEUE_LEN", "256", Int(1, math.MaxInt), "", "Send queue depth.").
			Inherit("RC_TX_QUEUE_LEN", "IB_TX_QUEUE_LEN")
	testQueueUD = New("UD_TX_QUEUE_LEN", "128", Int(1, 4096), "", "Send queue depth.").Inherit("IB_TX_QUEUE_LEN")
	testTable   = Table{"test", []Setting{testTLS, testSeg, testCells, testQueue, testQueueUD}}
)

// write makes a directory of files given as name, text pairs.
func write(t *testing.T, nameText ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(nameText); i += 2 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, nameText[i]), []byte(nameText[i+1]), 0o600))
	}
	return dir
}

// closed are options that see nothing of this machine but what is given.
func closed(o Options) Options {
	if o.Env == nil {
		o.Env = []string{}
	}
	if o.Dirs == nil {
		o.Dirs = []string{}
	}
	if o.Host == nil {
		o.Host = &Host{CPUVendor: "AMD", CPUModel: "Milan", DMI: map[string]string{"product_name": "Box 7"}}
	}
	return o
}

func load(t *testing.T, o Options) (*Set, []Warning) {
	t.Helper()
	s, warnings, err := Load(closed(o), testTable)
	require.NoError(t, err)
	return s, warnings
}

func texts(ws []Warning) string {
	lines := make([]string, len(ws))
	for i, w := range ws {
		lines[i] = w.String()
	}
	return strings.Join(lines, "\n")
}

func TestDefaults(t *testing.T) {
	s, warnings := load(t, Options{})
	assert.Empty(t, warnings)
	assert.Equal(t, Bytes(8192), testSeg.Get(s))
	assert.Equal(t, Origin{}, s.Origin("SEG_SIZE"))
	assert.Equal(t, "default", s.Origin("SEG_SIZE").String())
	assert.Equal(t, "warn", LogLevel.Get(s))
	assert.False(t, StrictMode.Get(s))
}

func TestNilSet(t *testing.T) {
	var s *Set
	assert.Equal(t, 32, testCells.Get(s))
	assert.Equal(t, Origin{}, s.Origin("TLS"))
	for v := range s.All() {
		t.Fatalf("yields %v", v)
	}
	s, err := s.With(map[string]string{"log_level": "info"})
	require.NoError(t, err)
	assert.Equal(t, "info", LogLevel.Get(s))
}

// A row of a table that was not loaded answers its default.
func TestGetOfForeignRow(t *testing.T) {
	s, _, err := Load(closed(Options{}))
	require.NoError(t, err)
	assert.Equal(t, 32, testCells.Get(s))
}

// Every subset of the sources, given in order of strength: the strongest that
// speaks wins, and is the origin.
func TestPrecedence(t *testing.T) {
	const name = "SHM_RING_CELLS"
	for bits := range 1 << 6 {
		has := func(i int) bool { return bits&(1<<i) != 0 }
		var files [2][]string
		o := Options{Env: []string{}, Flags: map[string]string{}}
		want, kind, where := 32, Default, ""
		for d := range 2 { // the weaker and the stronger directory
			if has(2 * d) {
				files[d] = append(files[d], "ucx.conf", "# first line\nUCX_SHM_RING_CELLS="+[]string{"101", "103"}[d])
			}
			if has(2*d + 1) {
				files[d] = append(files[d], "goucx.yaml", "shm:\n  ring_cells: "+[]string{"102", "104"}[d])
			}
			dir := write(t, files[d]...)
			o.Dirs = append(o.Dirs, dir)
			if has(2 * d) {
				want, kind, where = 101+2*d, File, filepath.Join(dir, "ucx.conf")+":2"
			}
			if has(2*d + 1) {
				want, kind, where = 102+2*d, File, filepath.Join(dir, "goucx.yaml")+":shm.ring_cells"
			}
		}
		if has(4) {
			o.Env = append(o.Env, "UCX_SHM_RING_CELLS=105")
			want, kind, where = 105, Env, "UCX_SHM_RING_CELLS"
		}
		if has(5) {
			o.Flags["shm-ring-cells"] = "106"
			want, kind, where = 106, Flag, "--shm-ring-cells"
		}
		s, warnings := load(t, o)
		assert.Empty(t, warnings, "%06b", bits)
		assert.Equal(t, want, testCells.Get(s), "%06b", bits)
		assert.Equal(t, Origin{kind, where}, s.Origin(name), "%06b", bits)
	}
}

func TestOriginString(t *testing.T) {
	assert.Equal(t, "environment UCX_TLS", Origin{Env, "UCX_TLS"}.String())
	assert.Equal(t, "flag --tls", Origin{Flag, "--tls"}.String())
	assert.Equal(t, "/etc/ucx/ucx.conf:12", Origin{File, "/etc/ucx/ucx.conf:12"}.String())
}

func TestInheritance(t *testing.T) {
	cases := []struct {
		name    string
		env     string
		rc, ud  int
		rcVia   string
		rcWhere string
	}{
		{"none", "", 256, 128, "", ""},
		{"widest", "UCX_IB_TX_QUEUE_LEN=11", 11, 11, "IB_TX_QUEUE_LEN", "UCX_IB_TX_QUEUE_LEN"},
		{"middle over widest", "UCX_IB_TX_QUEUE_LEN=11 UCX_RC_TX_QUEUE_LEN=12", 12, 11, "RC_TX_QUEUE_LEN", "UCX_RC_TX_QUEUE_LEN"},
		{
			"own over all", "UCX_RC_VERBS_TX_QUEUE_LEN=13 UCX_IB_TX_QUEUE_LEN=11 UCX_RC_TX_QUEUE_LEN=12",
			13, 11, "", "UCX_RC_VERBS_TX_QUEUE_LEN",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, warnings := load(t, Options{Env: strings.Fields(c.env)})
			assert.Empty(t, warnings)
			assert.Equal(t, c.rc, testQueue.Get(s))
			assert.Equal(t, c.ud, testQueueUD.Get(s))
			assert.Equal(t, c.rcWhere, s.Origin("RC_VERBS_TX_QUEUE_LEN").Where)
			for v := range s.All() {
				if v.Name == "RC_VERBS_TX_QUEUE_LEN" {
					assert.Equal(t, c.rcVia, v.InheritedFrom)
				}
			}
		})
	}
}

// The narrow name wins even where it stands in a weaker source.
func TestInheritanceGoesBeforeSource(t *testing.T) {
	dir := write(t, "ucx.conf", "UCX_RC_VERBS_TX_QUEUE_LEN=512")
	s, _ := load(t, Options{Dirs: []string{dir}, Env: []string{"UCX_RC_TX_QUEUE_LEN=64"}})
	assert.Equal(t, 512, testQueue.Get(s))
}

func TestBadValues(t *testing.T) {
	dir := write(t, "ucx.conf", "\nUCX_SEG_SIZE=huge\n", "goucx.json", `{"shm": {"ring_cells": 1}}`)
	s, _, err := Load(closed(Options{
		Dirs:  []string{dir},
		Env:   []string{"UCX_TLS=^", "UCX_IB_TX_QUEUE_LEN=0"},
		Flags: map[string]string{"log-level": strings.Repeat("x", 1000)},
	}), testTable)
	assert.Nil(t, s)
	require.Error(t, err)
	text := err.Error()
	for _, want := range []string{
		`UCX_SEG_SIZE: bad value "huge" from ` + filepath.Join(dir, "ucx.conf") + ":2: not understood; allowed: bytes from 64 to 1G",
		`UCX_SHM_RING_CELLS: bad value "1" from ` + filepath.Join(dir, "goucx.json") + ":shm.ring_cells: out of range 2 to 65536",
		`UCX_TLS: bad value "^" from environment UCX_TLS: ^ without a name; allowed: a comma list of transports`,
		`UCX_RC_VERBS_TX_QUEUE_LEN (which inherits UCX_IB_TX_QUEUE_LEN): bad value "0" from environment UCX_IB_TX_QUEUE_LEN`,
		`UCX_UD_TX_QUEUE_LEN (which inherits UCX_IB_TX_QUEUE_LEN): bad value "0"`,
		`UCX_LOG_LEVEL: bad value "xxxx`, `from flag --log-level: not understood; allowed: one of fatal,`,
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, strings.Repeat("x", 101), "a long value is cut")
}

// A bad value that a stronger source replaces does no harm.
func TestBadValueOverridden(t *testing.T) {
	dir := write(t, "ucx.conf", "UCX_SEG_SIZE=huge")
	s, _ := load(t, Options{Dirs: []string{dir}, Env: []string{"UCX_SEG_SIZE=4k"}})
	assert.Equal(t, Bytes(4096), testSeg.Get(s))
}

func TestEnvironment(t *testing.T) {
	s, warnings := load(t, Options{Env: []string{
		"PATH=/bin", "NOT_UCX_TLS=x", "UCX_TLS=first", "UCX_TLS=a=b", "malformed", "UCX_CONFIG_DIR=/nowhere",
	}})
	assert.Empty(t, warnings, "Dirs were given, so UCX_CONFIG_DIR is not looked at")
	assert.Equal(t, "a=b", testTLS.Get(s).String())
}

// An empty variable is a value: the empty list, not the default.
func TestEmptyVariable(t *testing.T) {
	s, _ := load(t, Options{Env: []string{"UCX_TLS="}})
	assert.False(t, testTLS.Get(s).Match("shm"))
	assert.Equal(t, Env, s.Origin("TLS").Kind)
}

func TestFlags(t *testing.T) {
	s, _ := load(t, Options{Flags: map[string]string{"--UCX_TLS": "shm", "seg.size": "1k"}})
	assert.Equal(t, "shm", testTLS.Get(s).String())
	assert.Equal(t, Bytes(1024), testSeg.Get(s))
	assert.Equal(t, "--seg.size", s.Origin("seg-size").Where)

	_, _, err := Load(closed(Options{Flags: map[string]string{"tsl": "shm", "tls": "a", "TLS": "b"}}), testTable)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "flag --tsl: no such setting; did you mean UCX_TLS?")
	assert.Contains(t, err.Error(), "flag --TLS and flag --tls name the same setting")
}

func TestWith(t *testing.T) {
	s, _ := load(t, Options{Env: []string{"UCX_TLS=shm"}})
	c, err := s.With(map[string]string{"seg_size": "2k", "ib-tx-queue-len": "9"})
	require.NoError(t, err)
	assert.Equal(t, Bytes(2048), testSeg.Get(c))
	assert.Equal(t, 9, testQueue.Get(c))
	assert.Equal(t, "shm", testTLS.Get(c).String())
	assert.Equal(t, Origin{Flag, "--seg_size"}, c.Origin("SEG_SIZE"))

	c, err = s.WithFrom("-D shm", map[string]string{"seg_size": "2k"})
	require.NoError(t, err)
	assert.Equal(t, "flag -D shm", c.Origin("SEG_SIZE").String())

	assert.Equal(t, Bytes(8192), testSeg.Get(s), "the original stays")
	_, err = s.With(map[string]string{"seg_size": "x", "nonsense": "y"})
	require.Error(t, err)
	assert.Contains(t, err.Error(), "bad value")
	assert.Contains(t, err.Error(), "--nonsense: no such setting")
}

func TestTables(t *testing.T) {
	other := New("TLS", "all", String(), "", "Another row of the name.")
	_, _, err := Load(closed(Options{}), testTable, Table{"twice", []Setting{other}})
	assert.EqualError(t, err, `setting TLS is declared twice, the second time in table "twice"`)
	s, _, err := Load(closed(Options{}), testTable, Table{"shared", []Setting{testTLS}})
	require.NoError(t, err)
	n := 0
	for v := range s.All() {
		if v.Name == "TLS" {
			n++
			assert.Equal(t, "test", v.Section)
		}
	}
	assert.Equal(t, 1, n)
}

func TestProgrammersErrorsPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"default":      func() { New("X", "1", Int(2, 3), "", "") },
		"lower case":   func() { New("x", "2", Int(2, 3), "", "") },
		"prefix":       func() { New("UCX_X", "2", Int(2, 3), "", "") },
		"empty":        func() { New("", "2", Int(2, 3), "", "") },
		"wider itself": func() { New("X", "2", Int(2, 3), "", "").Inherit("X") },
	} {
		t.Run(name, func(t *testing.T) { assert.Panics(t, f) })
	}
}

func TestAll(t *testing.T) {
	s, _ := load(t, Options{Env: []string{"UCX_SEG_SIZE=8192kb"}})
	var names []string
	for v := range s.All() {
		names = append(names, v.Name)
		if v.Name == "SEG_SIZE" {
			assert.Equal(t, Value{
				Section: "test", Name: "SEG_SIZE", Text: "8M", Default: "8K", Unit: "bytes",
				Help: "Size of a segment.", Allowed: testSeg.Allowed(), Origin: Origin{Env, "UCX_SEG_SIZE"},
			}, v)
		}
	}
	assert.Equal(t, "STRICT LOG_LEVEL LOG_FILE WARN_UNUSED_ENV_VARS TLS SEG_SIZE SHM_RING_CELLS "+
		"RC_VERBS_TX_QUEUE_LEN UD_TX_QUEUE_LEN", strings.Join(names, " "))
	for range s.All() {
		break
	}
}
