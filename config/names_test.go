package config

import (
	"strings"
	"testing"

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
		"option":      {Strict: true, Env: []string{"UCX_TSL=x", "UCX_IB_SL=3"}},
		"environment": {Env: []string{"UCX_STRICT=y", "UCX_TSL=x", "UCX_WARN_UNUSED_ENV_VARS=n"}},
		"flag":        {Env: []string{"UCX_TSL=x"}, Flags: map[string]string{"strict": "on"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := Load(closed(o), testTable)
			assert.Nil(t, s)
			assert.EqualError(t, err, "unknown setting UCX_TSL (environment UCX_TSL); did you mean UCX_TLS?")
		})
	}
	_, _, err := Load(closed(Options{Strict: true, Env: []string{"UCX_TLS=shm", "UCX_IB_SL=3", "UCX_CONFIG_DIR=/x"}}), testTable)
	require.NoError(t, err, "UCX's own names are no misspellings")
}

func TestKnownToUCX(t *testing.T) {
	dir := write(t, "ucx.conf", "UCX_IB_SL=3\nUCX_CUDA_COPY_BW=800GBs\n")
	_, warnings := load(t, Options{Dirs: []string{dir}, Env: []string{"UCX_RNDV_THRESH=8k"}})
	assert.Equal(t, []Warning{{
		Text: "known to UCX, not used by goucx: UCX_IB_SL (" + dir + "/ucx.conf:1), UCX_CUDA_COPY_BW (" + dir +
			"/ucx.conf:2), UCX_RNDV_THRESH (environment UCX_RNDV_THRESH)",
		Info: true,
	}}, warnings)
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
	for _, n := range ucxNames() {
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
