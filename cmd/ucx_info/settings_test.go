package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

var update = flag.Bool("update", false, "write docs/settings.md anew")

//go:generate go test -run=^TestSettingsDocument$ -update .

// TestSettingsDocument holds docs/settings.md to the tables.
func TestSettingsDocument(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "settings.md")
	var b bytes.Buffer
	b.WriteString("# Settings\n\n" +
		"Each is an environment variable, a line of `ucx.conf`, and, without `UCX_`, a key of `goucx.yaml`, `goucx.toml` or `goucx.json`. " +
		"`ucx_info -cf` shows their values and where each came from. " +
		"This file is made by `make generate` from the tables in the code.\n\n" +
		"The environment beats the files. These are looked for in `/etc/ucx`, in `../etc/ucx` beside the program's directory, in `$HOME`, " +
		"in `$UCX_CONFIG_DIR` and in the current directory; a later one beats an earlier one, and within one a `goucx.*`, of which there " +
		"may be one, beats `ucx.conf`. Case does not matter in the keys of a `goucx.*`, and sections join with `_`: " +
		"`shm: {ring_size: 32k}` is `UCX_SHM_RING_SIZE=32k`. A `[section]` of `ucx.conf` counts where its filters " +
		"(`CPU vendor=`, `CPU model=`, which `ucx_info -s` shows, and `DMI product name=` and the like) match.\n\n")
	require.NoError(t, config.Markdown(&b, ucp.Tables(transports.All())...))
	if *update {
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
		return
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, b.String(), string(have), "run make generate")
}

func TestConfigReadsBackAsItself(t *testing.T) {
	t.Setenv("UCX_TLS", "shm,self")
	t.Setenv("UCX_SHM_RING_SIZE", "64k")
	for _, args := range [][]string{{"-c"}, {"-c", "-f"}, {"-c", "-f", "-a"}} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ucx.conf"), []byte(info(t, args...)), 0o600))
		set, warnings, err := config.Load(config.Options{Env: []string{}, Dirs: []string{dir}}, ucp.Tables(transports.All())...)
		require.NoError(t, err)
		assert.Empty(t, warnings)
		values := map[string]string{}
		for v := range set.All() {
			assert.Equal(t, config.File, v.Origin.Kind, v.Name)
			values[v.Name] = v.Text
		}
		assert.Equal(t, "shm,self", values["TLS"])
		assert.Equal(t, "64K", values["SHM_RING_SIZE"])
	}
}

func TestConfigNamesOrigins(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("UCX_CONFIG_DIR", dir)
	t.Setenv("UCX_TLS", "self")
	conf := filepath.Join(dir, "ucx.conf")
	require.NoError(t, os.WriteFile(conf, []byte("\nUCX_SHM_RESCAN=5000.00us\nUCX_TLS=shm\n"), 0o600))
	out := info(t, "-c")
	assert.Contains(t, out, "# origin:    environment UCX_TLS\nUCX_TLS=self\n")
	assert.Contains(t, out, "# origin:    "+conf+":2\nUCX_SHM_RESCAN=5000.00us\n")
	assert.Equal(t, 2, strings.Count(out, "origin:"))
}

func TestConfigCommentsOutDefaults(t *testing.T) {
	t.Setenv("UCX_TLS", "self")
	out := info(t, "-c", "-C")
	assert.Contains(t, out, "\nUCX_TLS=self\n")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "UCX_") {
			assert.Equal(t, "UCX_TLS=self\n", line)
		} else {
			assert.True(t, strings.HasPrefix(line, "# UCX_") || line == "# origin:    environment UCX_TLS\n", line)
		}
	}
}

// As with UCX, -f alone shows the configuration. -C and -a alone do too, but beside another option,
// as UCX's, they are no wish for it.
func TestConfigByItsDetails(t *testing.T) {
	for alone, with := range map[string]string{"-f": "-cf", "-C": "-cC", "-a": "-ca", "-fC": "-cfC", "-aC": "-caC"} {
		assert.Equal(t, info(t, with), info(t, alone), alone)
		assert.NotEmpty(t, info(t, alone))
	}
	assert.NotContains(t, info(t, "-v", "-C", "-a"), "UCX_TLS=")
	assert.Contains(t, info(t, "-v", "-f"), "UCX_TLS=")
	assert.Equal(t, "UCX_SHM_RING_CELLS=32\n", info(t, "-c", "-F", "RING_CELLS"))
	assert.Contains(t, info(t, "-f", "-F", "RING_CELLS"), "UCX_SHM_RING_CELLS=32\n")
}

// Values are spelled as UCX spells them, whatever way they were given.
func TestConfigInUCXsSpelling(t *testing.T) {
	for _, kv := range [][2]string{
		{"UCX_LOG_LEVEL", "error"}, {"UCX_RNDV_THRESH", "1024"}, {"UCX_UD_TIMEOUT", "30"}, {"UCX_SPIN_TIME", "inf"}, {"UCX_STRICT", "yes"}, {"UCX_SHM_RING_SIZE", "1mb"},
		{"UCX_ZCOPY_THRESH", "AUTO"}, {"UCX_SLOW_EVENT_INTERVAL", "0"},
	} {
		t.Setenv(kv[0], kv[1])
	}
	out := info(t, "-c")
	for _, want := range []string{
		"UCX_LOG_LEVEL=ERROR", "UCX_RNDV_THRESH=1K", "UCX_UD_TIMEOUT=30000000.00us", "UCX_SPIN_TIME=inf", "UCX_STRICT=y", "UCX_SHM_RING_SIZE=1M",
		"UCX_ZCOPY_THRESH=auto", "UCX_SLOW_EVENT_INTERVAL=0.00us", "UCX_RC_TIMEOUT=2000000.00us",
	} {
		assert.Contains(t, out, "\n"+want+"\n")
	}
	assert.Contains(t, info(t, "-cf", "-F", "LOG_LEVEL"), "# default:   WARN\n")
	assert.NotContains(t, info(t, "-cf", "-F", "RC_TIMEOUT"), "default:", "it is the default")
}

func TestConfigFilter(t *testing.T) {
	out := info(t, "-c", "-F", "shm_ring")
	assert.Equal(t, "UCX_SHM_RING_CELLS=32\nUCX_SHM_RING_SIZE=10K\nUCX_SHM_RING_MAX_SIZE=256K\n", out)
	assert.Empty(t, info(t, "-c", "-F", "WARP"))
}

func TestConfigFull(t *testing.T) {
	out := info(t, "-cf", "-F", "SHM_RING_CELLS")
	assert.Equal(t, `# goucx configuration file
# Uncomment to modify values

#
# shm settings
#

#
# cells of each direction of a new connection; one holds a message of up to 48 bytes
#
# syntax:    a power of two from 8 to 4096
#
UCX_SHM_RING_CELLS=32
`, out)
}

func TestConfigWarnsAndRefuses(t *testing.T) {
	t.Setenv("UCX_SHM_RING_CELL", "64")
	out, diagnostics, err := try("-c", "-F", "RING_CELLS")
	require.NoError(t, err)
	assert.Equal(t, "UCX_SHM_RING_CELLS=32\n", out)
	assert.Contains(t, diagnostics, "did you mean UCX_SHM_RING_CELLS?")

	t.Setenv("UCX_SHM_RING_CELLS", "many")
	out, _, err = try("-c")
	require.ErrorContains(t, err, `UCX_SHM_RING_CELLS: bad value "many" from environment UCX_SHM_RING_CELLS`)
	assert.Empty(t, out)
}

func TestConfigJSON(t *testing.T) {
	t.Setenv("UCX_SHM_RING_CELLS", "64")
	var doc struct{ Settings []settingView }
	require.NoError(t, json.Unmarshal([]byte(info(t, "-c", "--json", "-F", "RING_CELLS")), &doc))
	require.Len(t, doc.Settings, 1)
	s := doc.Settings[0]
	assert.NotEmpty(t, s.Help)
	s.Help = ""
	assert.Equal(t, settingView{
		Section: "shm", Name: "UCX_SHM_RING_CELLS", Value: "64", Default: "32", Unit: "cells",
		Allowed: "a power of two from 8 to 4096", Origin: "environment UCX_SHM_RING_CELLS",
	}, s)
}
