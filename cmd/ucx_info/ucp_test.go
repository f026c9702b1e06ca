package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

func TestWhy(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
		want []string
	}{
		{"nothing refused", map[string]string{"UCX_TLS": "self,shm,rc"}, nil, []string{
			"peer: the worker itself\n#\n#     ud: not allowed by UCX_TLS=self,shm,rc (environment UCX_TLS)\n#\n",
			"#     shm/memory: messages: score 10000, below self/memory0 with 50000\n",
			"#     rc/lo:1: messages: score ",
			"# Chosen\n#\n#     self/memory0: am rma amo\n",
		}},
		{"by UCX_TLS", map[string]string{"UCX_TLS": "self"}, nil, []string{"#     shm: not allowed by UCX_TLS=self (environment UCX_TLS)\n"}},
		{"only UCX's", map[string]string{"UCX_TLS": "rc_x,self"}, []string{"-P", "intra"}, []string{
			"#     rc_x: a transport of UCX that goucx does not have, asked for by UCX_TLS=rc_x,self (environment UCX_TLS)\n#     shm: not",
		}},
		{"by negation", map[string]string{"UCX_TLS": "^sm"}, nil, []string{"#     shm: not allowed by UCX_TLS=^sm (environment UCX_TLS)\n"}},
		{"by device", map[string]string{"UCX_SHM_DEVICES": "^memory"}, nil, []string{
			"#     shm/memory: device not allowed by UCX_SHM_DEVICES=^memory (environment UCX_SHM_DEVICES)\n",
		}},
		{"by network device", map[string]string{"UCX_NET_DEVICES": "lo:1"}, nil, []string{
			"#     rc/inproc:1: device not allowed by UCX_NET_DEVICES=lo:1 (environment UCX_NET_DEVICES)\n",
			"#     ud/inproc:1: device not allowed by UCX_NET_DEVICES=lo:1 (environment UCX_NET_DEVICES)\n",
			"#     rc/lo:1: messages: score ", "#     ud/lo:1: messages: score ",
		}},
		{"by capability", map[string]string{"UCX_TLS": "ud"}, nil, []string{
			"#     ud/lo:1: put and get: does not put and get\n", "#     ud/lo:1: atomics: has no atomics\n",
		}},
		{"by -D", nil, []string{"-D", "shm"}, []string{
			"#     self/memory0: device not allowed by UCX_SELF_DEVICES= (flag -D shm)\n", "#     shm/memory: am rma amo\n",
		}},
		{"by lane choice", nil, []string{"-P", "intra"}, []string{
			"peer: another worker of this host\n", "#     self/memory0: reaches only its own worker\n", "# Chosen\n#\n#     shm/memory: am rma amo\n",
		}},
		{"nothing left", map[string]string{"UCX_TLS": "self"}, []string{"-P", "intra"}, []string{
			"#     none: this peer cannot be reached\n",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			out := info(t, append([]string{"--why"}, c.args...)...)
			for _, w := range c.want {
				assert.Contains(t, out, w)
			}
			assert.Contains(t, out, "# What the system forbids or limits\n#\n#     ")
		})
	}
}

func TestWhyUnused(t *testing.T) {
	assert.Contains(t, info(t, "--why"), "# Settings of UCX that goucx does not use\n#\n#     none\n")
	t.Setenv("UCX_IB_SL", "3")
	t.Setenv("UCX_TM_THRESH", "many")
	t.Setenv("UCX_TCP_MAX_IOV", "6") // UCX's default
	t.Setenv("UCX_WARN_UNUSED_ENV_VARS", "n")
	out, diagnostics, err := try("--why")
	require.NoError(t, err)
	assert.Empty(t, diagnostics)
	assert.Contains(t, out, "# Settings of UCX that goucx does not use\n#\n"+
		"#     UCX_IB_SL=3 (environment UCX_IB_SL): packets are sent with the defaults of the host's IP stack\n"+
		"#     UCX_TM_THRESH=many (environment UCX_TM_THRESH): UCX refuses it too, it wants memory units")
	assert.NotContains(t, out, "MAX_IOV")
	var doc struct{ Refused struct{ Unused []unusedView } }
	require.NoError(t, json.Unmarshal([]byte(info(t, "--why", "--json")), &doc))
	require.Len(t, doc.Refused.Unused, 2)
	assert.Equal(t, unusedView{"UCX_IB_SL", "3", "environment UCX_IB_SL", "packets are sent with the defaults of the host's IP stack"}, doc.Refused.Unused[0])

	t.Setenv("UCX_STRICT", "y")
	_, _, err = try("--why")
	assert.ErrorContains(t, err, "settings of UCX that goucx does not use: UCX_IB_SL=3 (environment), UCX_TM_THRESH=many (environment; UCX refuses it too")
}

func TestWhyJSON(t *testing.T) {
	t.Setenv("UCX_TLS", "self")
	var doc struct{ Refused struct{ Refused []refusal } }
	require.NoError(t, json.Unmarshal([]byte(info(t, "--why", "--json")), &doc))
	const reason = "not allowed by UCX_TLS=self (environment UCX_TLS)"
	assert.Equal(t, []refusal{
		{Transport: "shm", Reason: reason}, {Transport: "rc", Reason: reason}, {Transport: "ud", Reason: reason},
	}, doc.Refused.Refused)
}

func TestUnknownTransportListsTheKnown(t *testing.T) {
	t.Setenv("UCX_TLS", "warp")
	for _, arg := range []string{"--why", "-p", "-w", "-e"} {
		_, _, err := try(arg)
		assert.ErrorContains(t, err, `no transport "warp"; known are all, self, shm (sm, mm, posix)`, arg)
	}
}

func TestContext(t *testing.T) {
	out := info(t, "-p")
	assert.Contains(t, out, "#     component 0  :  self\n#     component 1  :  shm\n")
	assert.Contains(t, out, "#            md 1  :  component 1  shm\n")
	assert.Contains(t, out, "-- shm/memory\n")
	assert.Regexp(t, `# memory: -?\d+\.\d\dMB, file descriptors: \d+\n# create time: \d+\.\d{3} ms\n`, out)

	t.Setenv("UCX_TLS", "self")
	out = info(t, "-p")
	assert.Contains(t, out, "component 1  :  shm\n")
	assert.NotContains(t, out, "shm/memory")
}

func TestWorkerAddressByTransport(t *testing.T) {
	out := info(t, "-w")
	m := regexp.MustCompile(`address: (\d+) bytes\n`).FindStringSubmatch(out)
	require.Len(t, m, 2, out)
	assert.Regexp(t, `#  +owner: context \d+ of process [0-9a-f]{8}\n`, out)
	assert.Regexp(t, `#  +self: 8 bytes \(device 0, iface 8\)\n`, out)
	assert.Regexp(t, `#  +shm: \d+ bytes \(device \d+, iface \d+\)\n`, out)

	t.Setenv("UCX_TLS", "self")
	out = info(t, "-w")
	assert.NotContains(t, out, " shm:")
	assert.NotContains(t, out, m[0], "the address says less")
}

func TestEndpoint(t *testing.T) {
	out := info(t, "-e")
	assert.Contains(t, out, "lane[0]:  0:self/memory0 -> am rma amo\n")
	assert.Contains(t, out, "connected by: self/memory0\n")
	assert.Contains(t, out, "tag_send: 0..<egr/short>..8192..<egr/multi>..(inf)\n")

	for _, features := range []string{"ta", "taew", "ma"} {
		assert.Contains(t, info(t, "-e", "-u", features), "lane[0]:  0:self/memory0 -> am amo\n")
	}

	out = info(t, "-e", "-P", "intra")
	assert.Contains(t, out, "lane[0]:  1:shm/memory -> am rma amo\n")
	assert.Contains(t, out, "connected by: shm/memory\n")
}

func TestEndpointToAnAddressInAFile(t *testing.T) {
	c, err := ucp.Open(ucp.Config{Providers: transports.All()})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "address")
	require.NoError(t, os.WriteFile(path, w.Address(), 0o600))

	out := info(t, "-e", "--address", path)
	assert.Contains(t, out, " of "+path+"\n")
	assert.Contains(t, out, "connected by: shm/memory\n")

	damaged := append([]byte(nil), w.Address()...)
	damaged[len(damaged)/2]++
	require.NoError(t, os.WriteFile(path, damaged, 0o600))
	_, _, err = try("-e", "--address", path)
	assert.ErrorContains(t, err, "damaged")

	for _, arg := range []string{"-e", "--why"} {
		_, _, err = try(arg, "--address", "/dev/zero")
		assert.ErrorContains(t, err, "bad worker address", "of a file without an end")
	}

	require.NoError(t, os.WriteFile(path, w.Address(), 0o600))
	require.NoError(t, w.Close())
	t.Setenv("UCX_TLS", "self,shm") // others learn it by silence
	_, _, err = try("-e", "--address", path)
	require.ErrorIs(t, err, ucp.ErrUnreachable)
	assert.ErrorContains(t, err, "shm/memory: ", "why a worker that is gone cannot be reached")
}

func TestEndpointThatCannotConnect(t *testing.T) {
	t.Setenv("UCX_TLS", "self")
	out, _, err := try("-e", "-P", "intra")
	require.ErrorIs(t, err, ucp.ErrUnreachable)
	assert.Contains(t, out, "peer: another worker of this host", "what is known is shown before the error")
	assert.ErrorContains(t, err, "self/memory0: reaches only its own worker")
}

func TestThresholds(t *testing.T) {
	assert.Equal(t, "0..<egr/short>..(inf)", thresholds(unlimited, unlimited))
	assert.Equal(t, "0..<egr/short>..64..<egr/bcopy>..8192..<egr/multi>..(inf)", thresholds(64, 8192))
}

func TestSystem(t *testing.T) {
	out := info(t, "-s")
	assert.Regexp(t, `# Timer frequency: \d+\.\d{3} MHz\n`, out)
	assert.Contains(t, out, "#     cpu 0: ")
	assert.Regexp(t, `#     memfd: (yes|no: .+)\n`, out)
	assert.Contains(t, out, "# GOMAXPROCS: ")
}

// TestSystemShowsWhatSectionsAreMatchedAgainst: what -s prints makes a section
// of ucx.conf that counts here.
func TestSystemShowsWhatSectionsAreMatchedAgainst(t *testing.T) {
	out := info(t, "-s")
	var conf strings.Builder
	conf.WriteString("[here]\n")
	for _, name := range []string{"CPU vendor", "CPU model"} {
		_, rest, found := strings.Cut(out, "# "+name+": ")
		require.True(t, found, name)
		value, _, _ := strings.Cut(rest, "\n")
		conf.WriteString(name + "=" + value + "\n")
	}
	dir := t.TempDir()
	t.Setenv("UCX_CONFIG_DIR", dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ucx.conf"), []byte(conf.String()+"UCX_SHM_RESCAN=7ms\n"), 0o600))
	assert.Contains(t, info(t, "-c"), "\nUCX_SHM_RESCAN=7ms\n")
}

func TestFilters(t *testing.T) {
	tool := newTool(&options{}, nil, io.Discard)
	tool.filters(config.Host{CPUVendor: "Nvidia", CPUModel: "Grace", DMI: map[string]string{"product_name": "Box 7"}})
	assert.Equal(t, "# CPU vendor: Nvidia\n# CPU model: Grace\n# DMI product name: Box 7\n", tool.out.String())
}

func TestVersion(t *testing.T) {
	lines := strings.Split(info(t, "-v"), "\n")
	assert.Regexp(t, `^# Version `, lines[0])
	assert.Regexp(t, `^# Git revision `, lines[1])
	assert.Regexp(t, `^# Built with: go1\.`, lines[2])
	assert.Contains(t, info(t, "-b"), "# -compiler=gc\n")
}

func TestAllocation(t *testing.T) {
	out := info(t, "-m", "4k")
	assert.Regexp(t, `#  allocated 4K at address 0x[0-9a-f]+, pagesize: \d+K\n`, out)
	assert.Contains(t, out, "#  registered on: ")
	assert.Contains(t, out, "shm")
	assert.Regexp(t, `#  remote key: \d+ bytes\n`, out)
	for _, size := range []string{"0", "many", "-1", ""} {
		_, _, err := try("-m", size)
		assert.ErrorAs(t, err, new(usageError), size)
	}
}

func TestLogGoesToItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	t.Setenv("UCX_LOG_FILE", path)
	info(t, "-w")
	text, err := os.ReadFile(path)
	require.NoError(t, err, "the file is opened")
	assert.Empty(t, text, "nothing to warn about")

	t.Setenv("UCX_TSL", "x")
	info(t, "-c")
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(text), "WARN\tunknown setting UCX_TSL (environment UCX_TSL); did you mean UCX_TLS?\n")

	t.Setenv("UCX_LOG_FILE", filepath.Join(path, "below a file"))
	_, _, err = try("-w")
	assert.ErrorContains(t, err, path)
}

func TestLogLevelHoldsForWarningsOfSettings(t *testing.T) {
	t.Setenv("UCX_TSL", "x")
	t.Setenv("UCX_IB_SL", "3")
	dir := t.TempDir()
	t.Setenv("UCX_CONFIG_DIR", dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ucx.conf"), []byte("[all]\nCPU model=*\nUCX_TM_SW_RNDV=y\n"), 0o600))
	const unused = "settings of UCX that goucx does not use: "
	const warning = "ucx_info: warning: unknown setting UCX_TSL (environment UCX_TSL); did you mean UCX_TLS?\n" +
		"ucx_info: warning: " + unused + "UCX_IB_SL=3 (environment); ucx_info --why has the reasons; UCX_WARN_UNUSED_ENV_VARS=n hides this line\n"
	for level, want := range map[string]string{
		"error": "", "warn": warning,
		"info": warning + "ucx_info: note: " + unused + "UCX_TM_SW_RNDV=y (" + dir + "/ucx.conf:3); ucx_info --why has the reasons\n",
	} {
		t.Setenv("UCX_LOG_LEVEL", level)
		_, diagnostics, err := try("-c")
		require.NoError(t, err)
		assert.Equal(t, want, diagnostics, level)
	}
	t.Setenv("UCX_STRICT", "maybe")
	_, diagnostics, err := try("-c")
	require.Error(t, err)
	assert.Equal(t, warning, diagnostics, "told although there is no level yet")
}
