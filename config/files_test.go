package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func loadErr(t *testing.T, dirs ...string) string {
	t.Helper()
	_, _, err := Load(closed(Options{Dirs: dirs}), testTable)
	require.Error(t, err)
	return err.Error()
}

func TestTreeFormats(t *testing.T) {
	cases := map[string]string{
		"goucx.yaml": "Tls: [shm, self]\nshm:\n  RING-cells: 64\nucx_seg_size: 4k\nlog:\n  file: \"\"\nrc.verbs: {tx_queue_len: inf}\n",
		"goucx.yml":  "tls:\n- shm\n- self\nshm_ring_cells: 0x40\nSEG_SIZE: 4096\nRC: {verbs: {tx: {queue: {len: .inf}}}}\n",
		"goucx.toml": "TLS = [\"shm\", \"self\"]\nseg_size = 4096\n[shm]\nring_cells = 64\n[rc.verbs]\ntx_queue_len = inf\n",
		"goucx.json": `{"tls": "shm,self", "shm": {"ring": {"cells": 64}}, "seg_size": 4.096e3, "RC_VERBS_TX_QUEUE_LEN": "inf"}`,
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			s, warnings := load(t, Options{Dirs: []string{write(t, name, text)}})
			assert.Empty(t, warnings)
			assert.Equal(t, "shm,self", testTLS.Get(s).String())
			assert.Equal(t, 64, testCells.Get(s))
			assert.Equal(t, Bytes(4096), testSeg.Get(s))
			assert.Equal(t, "inf", formatInt(testQueue.Get(s)))
			assert.Equal(t, File, s.Origin("TLS").Kind)
		})
	}
}

func TestTreeValues(t *testing.T) {
	s, _ := load(t, Options{Dirs: []string{write(t, "goucx.yaml", "strict: true\nwarn_unused_env_vars: no\nlog: {file: 1.5}\n")}})
	assert.True(t, StrictMode.Get(s))
	assert.False(t, WarnUnused.Get(s))
	assert.Equal(t, "1.5", LogFile.Get(s))
}

func TestTreeFaults(t *testing.T) {
	cases := []struct{ name, file, text, want string }{
		{"no value", "goucx.yaml", "tls:\n", ":tls: no value"},
		{"date", "goucx.toml", "tls = 2024-01-02\n", ":tls: a value of type"},
		{"list of sections", "goucx.yaml", "tls: [{a: 1}]\n", ":tls: item 1: a value of type"},
		{"large number", "goucx.json", `{"seg_size": 18014398509481984}`, ":seg_size: number beyond 2^53"},
		{"not YAML", "goucx.yaml", "a: [1\n", "goucx.yaml: "},
		{"not TOML", "goucx.toml", "= 1", "goucx.toml: "},
		{"not JSON", "goucx.json", "{", "goucx.json: "},
		{"case", "goucx.json", `{"TLS": "a", "shm": {"Ring_Cells": 4, "ring_cells": 5}, "tls": "b"}`, `keys "TLS" and "tls" differ in case only`},
		{"case within", "goucx.yaml", "shm: {A: 1, a: 2}\n", `keys "shm.A" and "shm.a" differ in case only`},
		{"case of sections", "goucx.yaml", "SHM: {a: 1}\nshm: {b: 2}\n", `keys "SHM" and "shm" differ in case only`},
		{"point and section", "goucx.json", `{"shm.ring_cells": 4, "shm": {"ring_cells": 5}}`, `key "shm.ring_cells" stands twice`},
		{"points and sections", "goucx.json", `{"shm.ring": {"Cells": 4}, "shm": {"ring.cells": 5}}`, `keys "shm.ring.cells" and "shm.ring.Cells" differ`},
		{"depth", "goucx.json", strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000), "more than 16 sections within each other"},
		{"two spellings", "goucx.yaml", "shm_ring_cells: 4\nshm: {ring_cells: 5}\n", "name the same setting"},
		{"key twice", "goucx.yaml", "tls: a\ntls: b\n", "goucx.yaml: "},
		{"key twice", "goucx.toml", "tls = 'a'\ntls = 'b'\n", "goucx.toml: "},
		{"key twice", "goucx.json", `{"tls": [], "log": {"file": {}, "level": "info"}, "tls": "b"}`, `goucx.json: key "tls" stands twice`},
		{"key twice within", "goucx.json", `{"log": {"file": "tls", "x": [{"a": 1, "a": 2}]}}`, `key "a" stands twice`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			assert.Contains(t, loadErr(t, write(t, c.file, c.text)), c.want)
		})
	}
}

func TestJSONKeysThatDiffer(t *testing.T) {
	for _, text := range []string{`{"a": {"a": "a"}, "b": [{"a": 1}, {"a": 2}, "a", "a"], "c": {"a": 1}}`, `{}`, `[]`, `3`, `"a"`, `{"a"`, `}`, ``} {
		assert.NoError(t, checkJSONKeys([]byte(text)), text)
	}
}

func TestTwoOwnFiles(t *testing.T) {
	dir := write(t, "goucx.yaml", "tls: a", "goucx.json", "{}", "ucx.conf", "UCX_TLS=b")
	assert.Equal(t, filepath.Join(dir, "goucx.yaml")+" and "+filepath.Join(dir, "goucx.json")+
		": one directory may hold one of them", loadErr(t, dir))
	load(t, Options{Dirs: []string{write(t, "goucx.yaml", "tls: a"), write(t, "goucx.json", "{}")}})
}

func TestMissingAndUnreadable(t *testing.T) {
	file := filepath.Join(write(t, "plain", ""), "plain")
	_, warnings := load(t, Options{Dirs: []string{"/no/such/directory", file}})
	assert.Empty(t, warnings)

	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "goucx.yaml"), 0o700))
	assert.Contains(t, loadErr(t, dir), "goucx.yaml: not a regular file")

	big := write(t, "ucx.conf", strings.Repeat("#", maxFile+1))
	assert.Contains(t, loadErr(t, big), "too large for a configuration file")
}

func TestSearchPath(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	system := []string{InstallDir, filepath.Join(filepath.Dir(exe), "..", "etc", "ucx")}
	if system[0] == system[1] { // a test binary run from /tmp
		system = system[1:]
	}
	path := func(dirs ...string) []string { return append(slices.Clone(system), dirs...) }
	home, special, cwd := t.TempDir(), t.TempDir(), t.TempDir()
	t.Chdir(cwd)
	cwd, err = os.Getwd()
	require.NoError(t, err)

	assert.Equal(t, path(home, special, cwd),
		SearchPath([]string{"HOME=/other", "HOME=" + home, "UCX_CONFIG_DIR=" + special}))
	assert.Equal(t, path(cwd), SearchPath([]string{"HOME=", "UCX_CONFIG_DIR"}))
	assert.Equal(t, path(special, cwd),
		SearchPath([]string{"HOME=" + cwd, "UCX_CONFIG_DIR=" + special}), "a directory met twice keeps the stronger place")
	assert.Equal(t, path(filepath.Join(cwd, "conf"), cwd), SearchPath([]string{"UCX_CONFIG_DIR=conf"}))
}

func TestSearchPathIsRead(t *testing.T) {
	home, special := write(t, "ucx.conf", "UCX_TLS=home\nUCX_SEG_SIZE=1k"), write(t, "goucx.toml", "tls = 'special'")
	t.Chdir(write(t, "ucx.conf", "UCX_SHM_RING_CELLS=77"))
	s, _, err := Load(Options{Env: []string{"HOME=" + home, "UCX_CONFIG_DIR=" + special}}, testTable)
	require.NoError(t, err)
	assert.Equal(t, "special", testTLS.Get(s).String())
	assert.Equal(t, Bytes(1024), testSeg.Get(s))
	assert.Equal(t, 77, testCells.Get(s))
}

func TestConfigDirThatIsNone(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"/no/such", filepath.Join(write(t, "f", ""), "f")} {
		_, warnings, err := Load(Options{Env: []string{"UCX_CONFIG_DIR=" + dir}}, testTable)
		require.NoError(t, err)
		assert.Contains(t, texts(warnings), "UCX_CONFIG_DIR="+dir+" is not a directory")
	}
}
