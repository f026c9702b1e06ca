package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/cmdline"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/uct"
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
	t.Setenv("UCX_IB_HOP_LIMIT", "3")
	t.Setenv("UCX_TM_THRESH", "many")
	t.Setenv("UCX_TCP_MAX_IOV", "6") // UCX's default
	t.Setenv("UCX_WARN_UNUSED_ENV_VARS", "n")
	out, diagnostics, err := try("--why")
	require.NoError(t, err)
	assert.Empty(t, diagnostics)
	assert.Contains(t, out, "# Settings of UCX that goucx does not use\n#\n"+
		"#     UCX_IB_HOP_LIMIT=3 (environment UCX_IB_HOP_LIMIT): packets are sent with the defaults of the host's IP stack\n"+
		"#     UCX_TM_THRESH=many (environment UCX_TM_THRESH): UCX refuses it too, it wants memory units")
	assert.NotContains(t, out, "MAX_IOV")
	var doc struct{ Refused struct{ Unused []unusedView } }
	require.NoError(t, json.Unmarshal([]byte(info(t, "--why", "--json")), &doc))
	require.Len(t, doc.Refused.Unused, 2)
	assert.Equal(t, unusedView{"UCX_IB_HOP_LIMIT", "3", "environment UCX_IB_HOP_LIMIT", "packets are sent with the defaults of the host's IP stack"}, doc.Refused.Unused[0])

	t.Setenv("UCX_STRICT", "y")
	_, _, err = try("--why")
	assert.ErrorContains(t, err, "goucx does not use UCX_IB_HOP_LIMIT=3 (environment): packets are sent")
	assert.ErrorContains(t, err, "goucx does not use UCX_TM_THRESH=many (environment; UCX refuses it too")
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
	assert.Contains(t, out, "#                 lane[0]:  0:self/memory0.0 md[0]          -> md[0]/self/sysdev[255] am rma amo\n")
	assert.Contains(t, out, "connected by: self/memory0\n")
	assert.Contains(t, out, "#                tag_send: 0..<egr/short>..8193..<egr/multi>..65537..<rndv>..(inf)\n")
	assert.Contains(t, out, "#                  put[0]: 0..<short>..(inf)\n")

	for _, features := range []string{"ta", "taew", "ma"} {
		out := info(t, "-e", "-u", features)
		assert.Contains(t, out, "-> md[0]/self/sysdev[255] am amo\n")
		assert.NotContains(t, out, " put[0]", "not asked for")
	}
	for feature, ops := range map[string][]string{"t": {"tag_send", "tag_send_sync"}, "m": {"am_send"}, "r": {"put", "get"}, "a": nil} {
		out := info(t, "-e", "-u", feature)
		var found []string
		for _, op := range []string{"tag_send", "tag_send_sync", "am_send", "put", "get"} {
			if regexp.MustCompile(` ` + op + `: \d+\.\.\S+ `).MatchString(out) {
				found = append(found, op)
			}
		}
		assert.Equal(t, ops, found, feature)
	}

	out = info(t, "-e", "-P", "intra")
	assert.Contains(t, out, "lane[0]:  1:shm/memory.0 md[1]            -> md[1]/shm/sysdev[255] am rma amo\n")
	assert.Contains(t, out, "connected by: shm/memory\n")
}

// Each range of lengths of each operation has a line, with the lane that carries it.
func TestEndpointProtocols(t *testing.T) {
	t.Setenv("UCX_RNDV_THRESH", "10000")
	out := info(t, "-e", "-P", "intra", "-t", "rc", "-u", "tmr")
	for _, want := range []string{
		"#                tag_send: 0..<egr/short>..49..<egr/bcopy>..8177..<egr/multi>..10001..<rndv>..(inf)\n",
		"#                  put[0]: 0..<short>..65..<bcopy>..16384..<zcopy>..(inf)\n",
		"#                  get[0]: 0..<bcopy>..16384..<zcopy>..(inf)\n",
	} {
		assert.Contains(t, out, want)
	}
	for _, want := range []string{
		"tag_send: 0..48 +egr/short ", "tag_send: 49..8176 +egr/bcopy ", `tag_send: 10001..\(inf\) +rndv `, "tag_send_sync: 41..8168 +egr/bcopy ",
		"am_send: 8177..10000 +egr/multi ", `put: 16384..\(inf\) +zcopy `, `get: 0..16383 +bcopy `,
	} {
		assert.Regexp(t, "# +"+want+".+ rc/inproc:1\n", out)
	}
	assert.Contains(t, info(t, "-e", "-P", "intra", "-t", "ud"), "#                  put[0]: 0..<am>..(inf)\n", "emulated")
}

// -t restricts what UCP uses, by name or alias.
func TestEndpointOfOneTransport(t *testing.T) {
	for name, lane := range map[string]string{"self": "self/memory0", "posix": "shm/memory", "rc": "rc/inproc:1"} {
		assert.Contains(t, info(t, "-e", "-t", name), "connected by: "+lane+"\n")
	}
	out := info(t, "-d", "-e", "-t", "shm")
	assert.Contains(t, out, "Transport: shm\n")
	assert.NotContains(t, out, "Transport: self\n")
	assert.Contains(t, out, "connected by: shm/memory\n")
	assert.NotContains(t, info(t, "-p", "-t", "shm"), "-- self/memory0")
	_, _, err := try("-e", "-t", "warp")
	assert.ErrorContains(t, err, `UCX_TLS=warp (flag -t warp): no transport "warp"; known are all, self, shm`)
}

// The worker's address reaches the endpoint over TCP at an address of this host.
func TestEndpointByClientAndServer(t *testing.T) {
	out := info(t, "-e", "-A", "127.0.0.1")
	assert.Regexp(t, `client/server: worker address received over TCP from 127\.0\.0\.1:\d+\n`, out)
	assert.Contains(t, out, "connected by: self/memory0\n")
	assert.Contains(t, info(t, "-e", "-A", "127.0.0.1", "-P", "intra"), "connected by: shm/memory\n")
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		require.NoError(t, l.Close())
		for _, args := range [][]string{{"-e", "-A", "::1"}, {"-e", "-A", "::1", "-6"}} {
			assert.Regexp(t, `from \[::1\]:\d+\n`, info(t, args...))
		}
	}
	_, _, err := try("-e", "-A", "192.0.2.77")
	assert.ErrorContains(t, err, "-A 192.0.2.77: listen tcp 192.0.2.77:0: ")
}

// The estimated numbers say which interfaces would put idle connections to sleep.
func TestEstimatedEndpoints(t *testing.T) {
	assert.NotContains(t, info(t, "-p"), "estimated")
	out := info(t, "-p", "-n", "1025", "-N", "2000")
	assert.Contains(t, out, "#     estimated endpoints: 1025, per node: 2000\n")
	assert.Contains(t, out, "#     shm/memory: 1024 connections are live at once; idle ones of the others sleep\n")
	assert.Contains(t, out, "#     rc/lo:1: 1024 connections are live at once; idle ones of the others sleep\n")
	out = info(t, "-p", "-n", "1024")
	assert.Contains(t, out, "#     estimated endpoints: 1024, per node: unknown\n")
	assert.NotContains(t, out, "at once")
	t.Setenv("UCX_RC_MAX_PAIRS", "7")
	assert.Contains(t, info(t, "-p", "-n", "8"), "#     rc/lo:1: 7 connections are live at once")
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
	assert.Equal(t, "0..<short>..(inf)", thresholds([]ucp.ProtocolRange{{Protocol: "short", Max: math.MaxUint64}}))
	assert.Equal(t, "0..<egr/short>..8185..<rndv>..(inf)", thresholds([]ucp.ProtocolRange{
		{Protocol: "egr/short", Max: 8184}, {Min: 8185, Max: math.MaxUint64, Protocol: "rndv"},
	}))
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
	assert.Contains(t, info(t, "-c"), "\nUCX_SHM_RESCAN=7000.00us\n")
}

func TestFilters(t *testing.T) {
	tool := newTool(&options{}, nil, io.Discard)
	tool.filters(config.Host{CPUVendor: "Nvidia", CPUModel: "Grace", DMI: map[string]string{"product_name": "Box 7"}})
	assert.Equal(t, "# CPU vendor: Nvidia\n# CPU model: Grace\n# DMI product name: Box 7\n", tool.out.String())
}

func TestVersion(t *testing.T) {
	lines := strings.Split(info(t, "-v"), "\n")
	assert.Regexp(t, `^# Version `, lines[0])
	assert.Regexp(t, `^# Git branch '<unknown>', revision (<unknown>|[0-9a-f]{7})( \(modified\))?$`, lines[1])
	assert.Regexp(t, `^# Configured with: .*-compiler=gc `, lines[2])
	assert.Regexp(t, `^# Built with: go1\.`, lines[3])
}

// The version and the revision come from the build information, whatever way the program was built.
func TestVersionOfBuilds(t *testing.T) {
	const revision = "0147ec7c0ffee0147ec7c0ffee0147ec7c0ffee0"
	for name, c := range map[string]struct {
		info              debug.BuildInfo
		version, revision string
		modified          bool
	}{
		"in the tree": {debug.BuildInfo{
			Main:     debug.Module{Version: "v0.0.0-20261126020454-0147ec7c0ffe+dirty"},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: "true"}},
		}, "v0.0.0-20261126020454-0147ec7c0ffe+dirty", revision, true},
		"go install @main":   {debug.BuildInfo{Main: debug.Module{Version: "v0.2.1-0.20261126020454-0147ec7c0ffe"}}, "v0.2.1-0.20261126020454-0147ec7c0ffe", "0147ec7c0ffe", false},
		"go install @v1.0.0": {debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}}, "v1.0.0", "<unknown>", false},
		"without a stamp":    {debug.BuildInfo{}, "(devel)", "<unknown>", false},
	} {
		t.Run(name, func(t *testing.T) {
			v := cmdline.BuildOf(&c.info)
			assert.Equal(t, c.version, v.Version)
			assert.Equal(t, c.revision, v.Revision)
			assert.Equal(t, c.modified, v.Modified)
		})
	}
}

// -b is a header file of C: each line defines a macro.
func TestBuild(t *testing.T) {
	out := info(t, "-b")
	names := map[string]string{}
	for line := range strings.Lines(out) {
		m := regexp.MustCompile(`^#define ([A-Za-z_]\w*) *( (\d+|"[^"]*"))?\n$`).FindStringSubmatch(line)
		require.NotNil(t, m, line)
		assert.NotContains(t, names, m[1], "twice")
		names[m[1]] = m[3]
	}
	assert.Contains(t, out, "#define ENABLE_MT                 1\n", "in UCX's columns")
	assert.Equal(t, `"gc"`, names["GO_COMPILER"])
	assert.Equal(t, `":self:shm:rc:ud"`, names["uct_MODULES"])
	assert.Equal(t, "1", names["HAVE_TL_RC"])
	assert.Contains(t, names, "MODULE_GO_UBER_ORG_ZAP")
	assert.Contains(t, names, "UCX_CONFIG_H")
}

// -y has the sizes of the API's structures, and of those behind it.
func TestTypes(t *testing.T) {
	out := info(t, "-y")
	for pkg, sizes := range map[string]map[string]uintptr{
		"UCP:":            {"ucp.Endpoint": reflect.TypeFor[ucp.Endpoint]().Size(), "ucp.Worker": reflect.TypeFor[ucp.Worker]().Size(), "ucp.epSlot": 16},
		"UCT:":            {"uct.IfaceAttr": reflect.TypeFor[uct.IfaceAttr]().Size()},
		"TRANSPORTS/SHM:": {}, "TRANSPORTS/RC:": {}, "TRANSPORTS/UD:": {}, "TRANSPORTS/SELF:": {},
	} {
		assert.Contains(t, out, pkg+"\n    sizeof(")
		for name, size := range sizes {
			assert.Regexp(t, fmt.Sprintf(`(?m)^    sizeof\(%s\) = \.* %d +$`, regexp.QuoteMeta(name), size), out)
		}
	}
	assert.Regexp(t, `sizeof\(shm\.iface\) = \.+ \d+ `, out)
	t.Setenv("UCX_TLS", "self")
	assert.NotContains(t, info(t, "-y"), "shm.iface", "not open")
}

func TestTopology(t *testing.T) {
	out := info(t, "-T")
	assert.True(t, strings.HasPrefix(out, "#\n# System topology:\n#\n# +------+\n# |      |\n# | MB/s |\n# |      |\n# +------+\n#\n"), out)
	assert.Contains(t, out, "#     cpu 0: ")
}

func TestMemcpy(t *testing.T) {
	out := info(t, "-M")
	assert.Regexp(t, `^# Memcpy bandwidth:\n#           4096 bytes: [0-9.]+ MB/s\n`, out)
	assert.Regexp(t, `\n#       67108864 bytes: [0-9.]+ MB/s\n$`, out)
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
	t.Setenv("UCX_IB_HOP_LIMIT", "3")
	dir := t.TempDir()
	t.Setenv("UCX_CONFIG_DIR", dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ucx.conf"), []byte("[all]\nCPU model=*\nUCX_TM_SW_RNDV=y\n"), 0o600))
	const unused = "settings of UCX that goucx does not use: "
	const warning = "ucx_info: warning: unknown setting UCX_TSL (environment UCX_TSL); did you mean UCX_TLS?\n" +
		"ucx_info: warning: " + unused + "UCX_IB_HOP_LIMIT=3 (environment); ucx_info --why has the reasons; UCX_WARN_UNUSED_ENV_VARS=n hides this line\n"
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
