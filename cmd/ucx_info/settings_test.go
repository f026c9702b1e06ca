package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
		"The environment takes precedence over the files. They are read from these directories, and a later one takes precedence: " +
		"`/etc/ucx`, `../etc/ucx` beside the program's directory, `$HOME`, `$UCX_CONFIG_DIR`, the current directory. " +
		"A directory may have one `goucx.*`. It takes precedence over the `ucx.conf` beside it.\n\n" +
		"Case does not matter in the keys of a `goucx.*`, and sections join with `_`: " +
		"`shm: {ring_size: 32k}` is `UCX_SHM_RING_SIZE=32k`. A `[section]` of `ucx.conf` counts where its filters match. " +
		"Filters are `CPU vendor=`, `CPU model=`, which `ucx_info -s` shows, and `DMI product name=` and the like.\n\n" +
		"Sizes are written `4096`, `4k`, `4KB`, `4KiB` or `0x1000`. Times are written `20us`, `1.5s` or `inf`; without a unit they are in seconds.\n\n" +
		"*UCX's names* of a setting have the same meaning. The first that is set counts, before the setting's own name. " +
		"A setting *inherits* a name where neither is set.\n\n")
	require.NoError(t, config.Markdown(&b, ucp.Tables(transports.All())...))
	b.WriteString("\n## UCX's variables\n\n" +
		"These are all 472 of UCX 1.13. *used*: goucx has a setting of that name. " +
		"*alias*: it is another name of a setting above. *no meaning*: goucx does not use it.\n\n" +
		"A variable without meaning is named in one warning where its value is not UCX's default. " +
		"`UCX_WARN_UNUSED_ENV_VARS=n` hides the warning, and `UCX_STRICT=y` makes it an error. " +
		"`ucx_info --why` shows each with its reason. " +
		"So are names of other releases of UCX and of its accelerators.\n\n")
	require.NoError(t, config.MarkdownUCX(&b, ucp.Tables(transports.All())...))
	_, list, _ := strings.Cut(b.String(), "\n## UCX's variables\n")
	rows := map[string]bool{}
	for _, table := range ucp.Tables(transports.All()) {
		for _, r := range table.Settings {
			rows[config.Prefix+r.Name()] = true
			for _, n := range r.Aliases() {
				assert.Regexp(t, "\n\\| `UCX_"+n+"` \\| [^|]+ \\| alias \\| same as UCX_"+r.Name(), list, "no variable of UCX, or not this row's alone")
			}
		}
	}
	for line := range strings.Lines(list) {
		if _, reason, ok := strings.Cut(line, "| no meaning |"); ok {
			assert.NotContains(t, reason, "nothing that it would set", line)
			for _, name := range regexp.MustCompile(`UCX_[A-Z0-9_]+`).FindAllString(reason, -1) {
				assert.True(t, rows[name], "no row %s: %s", name, line)
			}
		}
	}
	assert.Equal(t, 472, strings.Count(list, "\n| `UCX_"))
	for line := range strings.Lines(b.String()) {
		for text := range strings.SplitSeq(line, "|") {
			for sentence := range strings.SplitSeq(text, ". ") {
				assert.LessOrEqual(t, len(strings.Fields(sentence)), 25, "%s", sentence)
			}
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
		return
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, b.String(), string(have), "run make generate")
}

// TestEveryVariableOfUCX: UCX's defaults are accepted without a word, and no garbage passes unseen.
func TestEveryVariableOfUCX(t *testing.T) {
	list, err := os.ReadFile(filepath.Join("..", "..", "config", "ucx-1.13.txt"))
	require.NoError(t, err)
	var defaults []string
	for line := range strings.Lines(string(list)) {
		if !strings.HasPrefix(line, "#") {
			setting, _, _ := strings.Cut(strings.TrimRight(line, "\n"), "\t")
			defaults = append(defaults, config.Prefix+setting)
		}
	}
	require.Len(t, defaults, 472)
	tables := ucp.Tables(transports.All())
	_, warnings, err := config.Load(config.Options{Env: defaults, Dirs: []string{}, Strict: true}, tables...)
	require.NoError(t, err)
	assert.Empty(t, warnings)
	free := []string{"UCX_LOG_FILE", "UCX_NET_DEVICES", "UCX_SHM_DEVICES", "UCX_SELF_DEVICES", "UCX_TLS"}
	for _, d := range defaults {
		name, _, _ := strings.Cut(d, "=")
		_, warnings, err := config.Load(config.Options{Env: []string{name + "=garbage"}, Dirs: []string{}}, tables...)
		if slices.Contains(free, name) { // any text; what it names is checked on use
			continue
		}
		if err == nil {
			require.Len(t, warnings, 1, name)
			assert.Contains(t, warnings[0].Text, name+"=garbage (environment")
		} else {
			assert.ErrorContains(t, err, name)
			assert.ErrorContains(t, err, `bad value "garbage"`)
			assert.ErrorContains(t, err, "; allowed: ")
		}
	}
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
		{"UCX_LOG_LEVEL", "error"},
		{"UCX_RNDV_THRESH", "1024"},
		{"UCX_UD_TIMEOUT", "30"},
		{"UCX_SPIN_TIME", "inf"},
		{"UCX_STRICT", "yes"},
		{"UCX_SHM_RING_SIZE", "1mb"},
		{"UCX_ZCOPY_THRESH", "AUTO"},
		{"UCX_SLOW_EVENT_INTERVAL", "0"},
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
# Cells of each direction of a new connection. One holds a message of up to 48 bytes.
#
# syntax:    a power of two from 8 to 4096
# aliases:   UCX_POSIX_FIFO_SIZE, UCX_SYSV_FIFO_SIZE
# inherits:  UCX_MM_FIFO_SIZE
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
		Allowed: "a power of two from 8 to 4096", Aliases: []string{"POSIX_FIFO_SIZE", "SYSV_FIFO_SIZE"}, Inherits: []string{"MM_FIFO_SIZE"}, Origin: "environment UCX_SHM_RING_CELLS",
	}, s)
}
