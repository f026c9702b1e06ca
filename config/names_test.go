package config

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnknownNameWarns(t *testing.T) {
	dir := write(t, "ucx.conf", "UCX_SHM_RING_CELS=4\n", "goucx.toml", "[shm]\nrink_cells = 4\n")
	_, warnings := load(t, Options{Dirs: []string{dir}, Env: []string{"UCX_TSL=x", "UCX_tls=x", "UCX_FROBNICATE=x", "UCX_=x"}})
	assert.Equal(t, "unknown setting UCX_SHM_RING_CELS ("+dir+"/ucx.conf:1); did you mean UCX_SHM_RING_CELLS?\n"+
		"unknown setting UCX_SHM_RINK_CELLS ("+dir+"/goucx.toml:shm.rink_cells); did you mean UCX_SHM_RING_CELLS?\n"+
		"unknown setting UCX_ (environment UCX_)\n"+
		"unknown setting UCX_FROBNICATE (environment UCX_FROBNICATE)\n"+
		"unknown setting UCX_TSL (environment UCX_TSL); did you mean UCX_TLS?\n"+
		"unknown setting UCX_tls (environment UCX_tls); did you mean UCX_TLS?", texts(warnings))
	for _, w := range warnings {
		assert.False(t, w.Info)
	}
}

func TestUnknownNameNearUCXs(t *testing.T) {
	_, warnings := load(t, Options{Env: []string{"UCX_RC_MLX5_TIMOUT=1s", "UCX_POSIX_FIFO_SIZ=64", "UCX_TM_TRESH=1k", "UCX_WARN_UNUSED_ENV_VAR=n"}})
	assert.Equal(t, "unknown setting UCX_POSIX_FIFO_SIZ (environment UCX_POSIX_FIFO_SIZ); did you mean UCX_POSIX_FIFO_SIZE?\n"+
		"unknown setting UCX_RC_MLX5_TIMOUT (environment UCX_RC_MLX5_TIMOUT); did you mean UCX_RC_MLX5_TIMEOUT?\n"+
		"unknown setting UCX_TM_TRESH (environment UCX_TM_TRESH); did you mean UCX_TM_THRESH?\n"+
		"unknown setting UCX_WARN_UNUSED_ENV_VAR (environment UCX_WARN_UNUSED_ENV_VAR); did you mean UCX_WARN_UNUSED_ENV_VARS?", texts(warnings))
}

func TestUnknownNameWithASmallPrefix(t *testing.T) {
	dir := write(t, "ucx.conf", "ucx_tls=x\n[ucx]\nUcx_shm_ring_cells=4\n")
	_, warnings := load(t, Options{Dirs: []string{dir}})
	assert.Equal(t, "unknown setting ucx_tls ("+dir+"/ucx.conf:1); did you mean UCX_TLS?\n"+
		"unknown setting Ucx_shm_ring_cells ("+dir+"/ucx.conf:3); did you mean UCX_SHM_RING_CELLS?", texts(warnings))
}

func TestUnknownNameOfGarbage(t *testing.T) {
	dir := write(t, "ucx.conf", "\x1b[31m\xff=1\n"+strings.Repeat("x", 1000)+"=1\n", "goucx.json", `{"a\nb": 1}`)
	_, warnings := load(t, Options{Dirs: []string{dir}})
	assert.Equal(t, `unknown setting "UCX_\x1b[31m\xff" (`+dir+"/ucx.conf:1)\n"+
		`unknown setting "UCX_`+strings.Repeat("x", 96)+`"... (`+dir+"/ucx.conf:2)\n"+
		`unknown setting "UCX_A\nB" (`+dir+`/goucx.json:"a\nb")`, texts(warnings))
}

func TestWarnUnusedOff(t *testing.T) {
	dir := write(t, "ucx.conf", "UCX_TSL=shm")
	_, warnings := load(t, Options{Dirs: []string{dir}, Env: []string{"UCX_TSL=x", "UCX_WARN_UNUSED_ENV_VARS=n"}})
	assert.Equal(t, "unknown setting UCX_TSL ("+dir+"/ucx.conf:1); did you mean UCX_TLS?", texts(warnings),
		"it speaks of the environment only")
}

func TestStrict(t *testing.T) {
	for name, o := range map[string]Options{
		"option":      {Strict: true, Env: []string{"UCX_TSL=x", "UCX_IB_SL=auto"}},
		"environment": {Env: []string{"UCX_STRICT=y", "UCX_TSL=x", "UCX_WARN_UNUSED_ENV_VARS=n"}},
		"flag":        {Env: []string{"UCX_TSL=x"}, Flags: map[string]string{"strict": "on"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := Load(closed(o), testTable)
			assert.Nil(t, s)
			assert.EqualError(t, err, "unknown setting UCX_TSL (environment UCX_TSL); did you mean UCX_TLS?")
		})
	}
	_, _, err := Load(closed(Options{Strict: true, Env: []string{"UCX_TLS=shm", "UCX_IB_SL=auto", "UCX_CONFIG_DIR=/x"}}), testTable)
	require.NoError(t, err, "a value that is UCX's default changes nothing there either")
	s, warnings, err := Load(closed(Options{Env: []string{"UCX_STRICT=y", "UCX_IB_SL=3", "UCX_WARN_UNUSED_ENV_VARS=n"}}), testTable)
	assert.Nil(t, s)
	assert.Empty(t, warnings)
	assert.EqualError(t, err, "goucx does not use UCX_IB_SL=3 (environment): it is the same for rc and ud: UCX_IB_PKEY, UCX_IB_SL and UCX_IB_TRAFFIC_CLASS set it for RDMA devices")
}

func TestUnusedWarns(t *testing.T) {
	dir := write(t, "ucx.conf", "UCX_IB_SL=3\nUCX_CUDA_COPY_BW=800GBs\nUCX_ZCOPY_THRESH=auto\n")
	o := Options{Dirs: []string{dir}, Env: []string{
		"UCX_RNDV_THRESH=8k", "UCX_TM_THRESH=many", "UCX_TM_MAX_BB_SIZE=1024", "UCX_RC_TIMEOUT=1s", "UCX_MAX_NUM_EPS=\a", "UCX_DISTANCE_BW=auto",
	}}
	s, warnings := load(t, o)
	assert.Equal(t, []Warning{{
		Text: "settings of UCX that goucx does not use: UCX_CUDA_COPY_BW=800GBs (" + dir + "/ucx.conf:2), UCX_DISTANCE_BW=auto (environment), " +
			"UCX_IB_SL=3 (" + dir + `/ucx.conf:1), UCX_MAX_NUM_EPS="\a" (environment; UCX refuses it too, it wants unsigned long: <number>, "inf", or "auto"), ` +
			`UCX_RNDV_THRESH=8k (environment), UCX_TM_THRESH=many (environment; UCX refuses it too, it wants memory units: <number>[b|kb|mb|gb], "inf", or "auto")` +
			"; ucx_info --why has the reasons; UCX_WARN_UNUSED_ENV_VARS=n hides this line",
	}}, warnings)
	unused := s.Unused()
	require.Len(t, unused, 6)
	assert.Equal(t, Unused{Name: "UCX_IB_SL", Text: "3", Origin: Origin{File, dir + "/ucx.conf:1"}, Reason: reasonUnused("IB_SL")}, unused[2])

	o.Env = append(o.Env, "UCX_WARN_UNUSED_ENV_VARS=n", "UCX_IB_SL=auto")
	s, warnings = load(t, o)
	assert.Empty(t, warnings)
	assert.Len(t, s.Unused(), 5, "the environment has put UCX's default over the value of the file")
	assert.Nil(t, (*Set)(nil).Unused())
}

// UCX's own ucx.conf tunes it for some CPUs; goucx does not warn of that.
func TestUnusedForHost(t *testing.T) {
	dir := write(t, "ucx.conf", "[Any AMD]\nUCX_DISTANCE_BW=auto,sys:5100MBs\nCPU vendor=AMD\n[other]\nCPU vendor=Arm\nUCX_IB_SL=3\n")
	_, warnings, err := Load(closed(Options{Dirs: []string{dir}, Strict: true}), testTable)
	require.NoError(t, err)
	assert.Equal(t, []Warning{{
		Text: "settings of UCX that goucx does not use: UCX_DISTANCE_BW=auto,sys:5100MBs (" + dir + "/ucx.conf:2); ucx_info --why has the reasons",
		Info: true,
	}}, warnings)
}

func TestAliases(t *testing.T) {
	row := New("RC_TIMEOUT", "2s", Duration(time.Millisecond, time.Minute), "", "").
		Alias("RC_VERBS_TIMEOUT", "RC_MLX5_TIMEOUT").Inherit("IB_X")
	table := Table{"test", []Setting{row}}
	for env, want := range map[string]time.Duration{
		"UCX_IB_X=3": 3, "UCX_IB_X=3 UCX_RC_TIMEOUT=4": 4, "UCX_RC_TIMEOUT=4 UCX_RC_MLX5_TIMEOUT=5": 5,
		"UCX_RC_MLX5_TIMEOUT=5 UCX_RC_VERBS_TIMEOUT=6000000.00us": 6, "UCX_RC_VERBS_TIMEOUT=inf": 60,
	} {
		s, warnings, err := Load(closed(Options{Env: strings.Fields(env), Strict: true}), table)
		require.NoError(t, err, env)
		assert.Empty(t, warnings)
		assert.Equal(t, want*time.Second, row.Get(s), env)
		assert.Equal(t, Env, s.Origin("RC_TIMEOUT").Kind)
		assert.Empty(t, s.Unused())
		s, err = s.With(map[string]string{"rc-timeout": "7"})
		require.NoError(t, err)
		assert.Equal(t, 7*time.Second, row.Get(s), "a flag beats %s", env)
	}
	_, _, err := Load(closed(Options{Env: []string{"UCX_RC_VERBS_TIMEOUT=soon"}}), table)
	assert.EqualError(t, err, `UCX_RC_TIMEOUT (also UCX_RC_VERBS_TIMEOUT): bad value "soon" from environment UCX_RC_VERBS_TIMEOUT: `+
		"not understood; allowed: a time from 1ms to 1m in ns, us, ms, s or m, inf for the longest")
	assert.Panics(t, func() { New("X", "1", Int(0, 3), "", "").Alias("X") })
}

// Of UCX's variables each has a default of its own syntax, and is known with all its wider names.
func TestUCXVariables(t *testing.T) {
	vars := ucxVariables()
	require.Len(t, vars, 472)
	for _, v := range vars {
		is, err := v.isDefault(v.def)
		require.NoError(t, err, v)
		assert.True(t, is, v)
		for _, n := range append([]string{v.name}, v.wider...) {
			assert.True(t, validName(n), n)
			assert.True(t, knownToUCX(n), n)
		}
	}
}

// TestUCXListIsUCXs compares the list with the tool that is installed. Three variables are of the
// machine or of the package.
func TestUCXListIsUCXs(t *testing.T) {
	tool, err := exec.LookPath("ucx_info")
	if err != nil {
		t.Skipf("UCX's tool is not installed: %v", err)
	}
	version, err := exec.Command(tool, "-v").Output()
	require.NoError(t, err)
	if !strings.HasPrefix(string(version), "# Version 1.13.") {
		t.Skipf("UCX's tool is not of 1.13: %s", version)
	}
	cmd := exec.Command(tool, "-c", "-f")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, Prefix) })
	full, err := cmd.Output()
	require.NoError(t, err)
	var want []ucxVariable
	var v ucxVariable
	for line := range strings.Lines(string(full)) {
		line = strings.TrimRight(line, "\n")
		if s, ok := strings.CutPrefix(line, "# syntax:"); ok {
			v.syntax = strings.TrimSpace(s)
		} else if s, ok := strings.CutPrefix(line, "# inherits:"); ok {
			v.wider = strings.Fields(strings.NewReplacer(Prefix, "", ",", "").Replace(s))
		} else if s, ok := strings.CutPrefix(line, Prefix); ok {
			v.name, v.def, _ = strings.Cut(s, "=")
			want, v = append(want, v), ucxVariable{}
		}
	}
	ofMachine := []string{"SYSV_BW", "POSIX_BW", "CMA_BW", "MODULE_DIR"}
	require.Len(t, ucxVariables(), len(want))
	for i, have := range ucxVariables() {
		if slices.Contains(ofMachine, have.name) {
			want[i].def = have.def
		}
		if len(have.wider) == 0 {
			have.wider = nil
		}
		assert.Equal(t, want[i], have)
	}
}

func TestUCXValues(t *testing.T) {
	byName := func(name string) *ucxVariable {
		for i, v := range ucxVariables() {
			if v.name == name {
				return &ucxVariables()[i]
			}
		}
		t.Fatal(name)
		return nil
	}
	for text, name := range map[string]string{
		"warn": "LOG_LEVEL", "1024": "LOG_BUFFER", " 1kb": "LOG_BUFFER", "0": "VFS_THREAD_AFFINITY", "N": "PROTO_ENABLE", "maybe": "MEMTYPE_CACHE",
		"SIGHUP": "DEBUG_SIGNO", "10s": "TCP_KEEPIDLE", "10000ms": "TCP_KEEPIDLE", "AUTO": "NUM_EPS", "-1": "DC_MLX5_TX_MAX_BB",
		".5": "POSIX_FIFO_RELEASE_FACTOR", "11145MBs": "CMA_BW", "ill,segv, bus ,SIGFPE": "ERROR_SIGNALS", "64,1024": "RX_MPOOL_SIZES",
		"OFF": "RESOLVE_REMOTE_EP_ID", "try": "PROTO_INDIRECT_ID", "": "ERROR_MAIL_TO",
	} {
		is, err := byName(name).isDefault(text)
		require.NoError(t, err, name)
		assert.True(t, is, "%s=%s", name, text)
	}
	for text, name := range map[string]string{
		"loud": "LOG_LEVEL", "1x": "LOG_BUFFER", "2": "PROTO_ENABLE", "tr": "MEMTYPE_CACHE", "1 s s": "TCP_KEEPIDLE", "garbage": "NUM_EPS", "half": "POSIX_FIFO_RELEASE_FACTOR",
		"11145": "CMA_BW", "bt,gdb": "HANDLE_ERRORS", "7": "UD_VERBS_PKEY", "0-": "TCP_PORT_RANGE", "+": "DEBUG_SIGNO", "auto": "LOG_DATA_SIZE", "": "LOG_BUFFER",
	} {
		_, err := byName(name).isDefault(text)
		assert.ErrorContains(t, err, "UCX refuses it too, it wants ", "%s=%s", name, text)
	}
	for _, c := range []struct{ name, text string }{{"LOG_BUFFER", "2k"}, {"MODULES", "^cu*"}, {"LOG_LEVEL_TRIGGER", "error"}, {"TM_SW_RNDV", "y"}, {"IB_RCACHE_MAX_SIZE", "1g"}} {
		is, err := byName(c.name).isDefault(c.text)
		require.NoError(t, err)
		assert.False(t, is, c.name)
	}
}

// Each reason is needed: without it a variable that no row of the document reads would have none.
func TestUCXReasons(t *testing.T) {
	for name := range ucxNames() {
		assert.NotEmpty(t, reasonUnused(name), name)
	}
	used := map[string]bool{}
	for _, name := range append(slices.Collect(maps.Keys(ucxNames())), "CUDA_X", "EFA_X", "GDR_COPY_X", "GGA_X", "KNEM_X", "ROCM_X", "XPMEM_X", "ZE_X") {
		for _, u := range ucxUnused {
			i := slices.IndexFunc(strings.Fields(u.names), func(p string) bool { return glob(p, name) })
			if i >= 0 {
				used[strings.Fields(u.names)[i]+u.reason] = true
				break
			}
		}
	}
	for _, u := range ucxUnused {
		for p := range strings.FieldsSeq(u.names) {
			assert.True(t, used[p+u.reason], "no name needs %s of %q", p, u.reason)
		}
		assert.LessOrEqual(t, len(strings.Fields(u.reason)), 25, u.reason)
	}
}

func TestUCXNames(t *testing.T) {
	for _, n := range []string{
		"TLS", "RC_VERBS_TX_QUEUE_LEN", "RC_TX_QUEUE_LEN", "IB_TX_QUEUE_LEN", "UD_MAX_WINDOW", "MM_FIFO_SIZE",
		"POSIX_DIR", "RCACHE_ENABLE", "TCP_MAX_BW", "DC_TX_POLICY", "GDR_COPY_LAT", "RC_MAX_RD_ATOMIC",
		"IB_PCI_RELAXED_ORDERING", "MM_SEND_OVERHEAD",
	} {
		assert.True(t, knownToUCX(n), n)
	}
	for _, n := range []string{"", "TSL", "RC_", "SHM_RING_CELLS", "UD_UD_TIMEOUT"} {
		assert.False(t, knownToUCX(n), n)
	}
	for n := range ucxNames() {
		assert.True(t, validName(n), n)
	}
}

func TestConfigDirInFile(t *testing.T) {
	dir := write(t, "ucx.conf", "UCX_CONFIG_DIR=/x")
	_, warnings := load(t, Options{Dirs: []string{dir}})
	assert.Equal(t, "UCX_CONFIG_DIR ("+dir+"/ucx.conf:1) has a meaning in the environment only", texts(warnings))
}

func TestDistance(t *testing.T) {
	cases := []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"TLS", "TLS", 0},
		{"TLS", "TSL", 1},
		{"TLS", "TLSS", 1},
		{"TLS", "TS", 1},
		{"TLS", "TXS", 1},
		{"", "ABC", 3},
		{"KITTEN", "SITTING", 3},
		{"AB", "ABCDEFGHIJKLMN", 9}, // cut off by the limit
	}
	for _, c := range cases {
		assert.Equal(t, c.want, distance(c.a, c.b, 9), "%s %s", c.a, c.b)
		assert.Equal(t, c.want, distance(c.b, c.a, 9), "%s %s", c.b, c.a)
	}
}
