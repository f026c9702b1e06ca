package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/perf/report"
)

// verbsTests lists the tests of verbs.
func verbsTests() (names []string) {
	for _, row := range perf.Tests() {
		if row.API == perf.Verbs {
			names = append(names, row.Name)
		}
	}
	return names
}

// Each test of verbs runs within this process on either link, by one thread or by
// one for each side.
func TestVerbsLoopback(t *testing.T) {
	for _, name := range verbsTests() {
		for _, device := range []string{"inproc", "lo"} {
			t.Run(name+" "+device, func(t *testing.T) {
				for _, threads := range []string{"1", "2"} {
					out, _, err := command("-l", "-q", "-n", "200", "-t", name, "-d", device, "-T", threads)
					require.NoError(t, err)
					if name == "verbs_rate" {
						assert.Regexp(t, `(?m)^Per message: locks 0\.\d+, .*, cqes 0\.\d+$`, out)
						assert.Contains(t, out, "Resources: contexts "+threads+", uar_pages ")
					} else {
						assert.Regexp(t, finalRow, out)
					}
					assert.Contains(t, out, "         200 ")
				}
			})
		}
	}
}

// Each test of verbs but verbs_rate runs between two processes, over the device that
// the connection chose; ping-pongs of data are verified.
func TestVerbsTwoProcesses(t *testing.T) {
	for _, name := range verbsTests() {
		if name == "verbs_rate" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			args := []string{"-q", "-n", "300", "-t", name}
			switch {
			case strings.HasSuffix(name, "send_lat"), name == "verbs_write_lat":
				args = append(args, "-V", "-s", "3000")
			case strings.HasSuffix(name, "send_bw"):
				args = append(args, "-O", "64", "--post-list", "16")
			}
			s, c := both(t, []string{"-q"}, args)
			assert.Regexp(t, finalRow, c.Out.String())
			assert.Contains(t, s.Out.String(), "| API:          verbs")
		})
	}
}

// What a process captured dissects as InfiniBand, with nothing malformed.
func TestPcap(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	for _, name := range []string{"verbs_send_lat", "verbs_read_lat", "verbs_fadd_lat", "verbs_ud_send_lat"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "run.pcap")
			args := []string{"-q", "-n", "50", "-w", "5", "-t", name, "--pcap", file}
			if strings.HasSuffix(name, "send_lat") {
				args = append(args, "-V", "-s", "4000")
			}
			both(t, []string{"-q"}, args)
			decode := []string{"-r", file}
			for _, port := range udpPorts(t, tshark, file) {
				decode = append(decode, "-d", "udp.port=="+port+",infiniband")
			}
			all := lines(t, exec.Command(tshark, append(decode, "-T", "fields", "-e", "infiniband.bth.opcode")...))
			require.GreaterOrEqual(t, len(all), 100)
			assert.NotContains(t, all, "", "a packet that is no InfiniBand")
			assert.Empty(t, lines(t, exec.Command(tshark, append(decode, "-Y", "_ws.malformed || _ws.expert.severity == error")...)))
		})
	}
}

// udpPorts are the ports in a capture.
func udpPorts(t *testing.T, tshark, file string) []string {
	t.Helper()
	seen := map[string]bool{}
	var ports []string
	for _, l := range lines(t, exec.Command(tshark, "-r", file, "-T", "fields", "-e", "udp.srcport", "-e", "udp.dstport")) {
		for p := range strings.FieldsSeq(l) {
			if !seen[p] {
				seen[p] = true
				ports = append(ports, p)
			}
		}
	}
	return ports
}

// lines are those that a program prints.
func lines(t *testing.T, c *exec.Cmd) []string {
	t.Helper()
	out, err := c.Output()
	require.NoError(t, err)
	if len(out) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func TestPcapRefused(t *testing.T) {
	_, _, err := command("-l", "-q", "-n", "10", "-t", "verbs_send_lat", "--pcap", filepath.Join(t.TempDir(), "no", "such"))
	require.ErrorIs(t, err, os.ErrNotExist)
	t.Setenv("UCX_SOFT_LINK", "inproc")
	_, _, err = command("-l", "-q", "-n", "10", "-t", "verbs_send_lat", "--pcap", filepath.Join(t.TempDir(), "x"))
	require.ErrorContains(t, err, "UCX_SOFT_LINK")
	assert.Equal(t, 2, exitCode(err))
}

// Devices that are not there are refused by name.
func TestVerbsNoDevice(t *testing.T) {
	_, _, err := command("-l", "-q", "-n", "10", "-t", "verbs_send_lat", "-d", "mlx5_0")
	require.ErrorContains(t, err, `no device "mlx5_0"; there are inproc lo`)
	_, _, err = command("-l", "-q", "-n", "10", "-t", "verbs_ud_send_lat", "-s", "5000")
	require.ErrorContains(t, err, "message size (5000) is larger than max supported (4096)")
	_, _, err = command("-l", "-q", "-n", "10", "-t", "verbs_send_bw", "--post-list", "33")
	require.ErrorContains(t, err, "no more than the window of 32")
	_, _, err = command("-l", "-q", "-n", "10", "-t", "tag_lat", "--post-list", "2")
	require.ErrorContains(t, err, "only tests of verbs post lists")
}

// A capture is of verbs tests.
func TestPcapOfNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for _, line := range []string{"-t tag_lat", "-t am_lat -x shm"} {
		_, _, err := command(append(strings.Fields(line), "-l", "-q", "-n", "10", "--pcap", path)...)
		require.ErrorContains(t, err, "--pcap captures the packets of verbs tests; none is to run")
		assert.Equal(t, 2, exitCode(err))
		assert.NoFileExists(t, path)
	}
	s, _ := both(t, []string{"--pcap", path}, []string{"-q", "-t", "tag_lat", "-n", "10"})
	assert.Contains(t, s.Err.String(), "warning: --pcap "+path+" has no packet")
}

// A list that the window never admits is refused.
func TestPostListFitsTheWindow(t *testing.T) {
	for _, name := range []string{"verbs_read_lat", "verbs_fadd_lat"} {
		_, _, err := command("-l", "-q", "-n", "100", "-t", name, "--post-list", "4")
		require.ErrorContains(t, err, name+": list of 4 work requests is out of range: 1-1024, and no more than the window of 1")
		assert.Equal(t, 2, exitCode(err))
	}
}

// The options of verbs_rate reach it, and other tests do not use them.
func TestVerbsRateOptions(t *testing.T) {
	out, _, err := command("-l", "-f", "--json", "-t", "verbs_rate", "-n", "6400", "-T", "4", "-s", "2",
		"--sharing", "Static", "--without", "postlist,blueflame", "--unsignaled", "32")
	require.NoError(t, err)
	var row report.JSONRow
	require.NoError(t, json.Unmarshal([]byte(out), &row))
	p := row.Result.Params
	assert.Equal(t, []any{"static", 1, 32, 128, 4}, []any{p.Sharing, p.PostList, p.Unsignaled, p.Window, p.ThreadCount})
	assert.Equal(t, map[string]float64{"contexts": 1, "uar_pages": 8, "uuars": 16, "uuars_used": 4, "qps": 4, "cqs": 4, "mrs": 1}, row.Result.Resources)
	delete(row.Result.PerMessage, "cq_locks") // that depends on how often threads poll
	assert.Equal(t, map[string]float64{"locks": 1, "doorbells": 1, "blueflames": 0, "wqe_fetches": 1, "payload_fetches": 0, "cqes": 1. / 32}, row.Result.PerMessage)

	_, warnings, err := command("-l", "-f", "-t", "verbs_write_bw", "-n", "64", "--sharing", "static", "--without", "postlist", "--share", "cq=2", "--unsignaled", "2")
	require.NoError(t, err)
	for _, o := range []string{"--sharing 'static'", "--without 'postlist'", "--share 'cq=2'", "--unsignaled '2'"} {
		assert.Contains(t, warnings, o+" ignored by verbs_write_bw")
	}
	for args, says := range map[string]string{
		"--sharing statc":               "did you mean static?",
		"--share ctxx=2":                "did you mean ctx?",
		"--without list":                "unknown feature \"list\"",
		"--share cq=2 --sharing static": "exclude each other",
		"-O 64":                         "need a window of 95, not 64",
	} {
		_, _, err := command(append([]string{"-l", "-t", "verbs_rate", "-T", "4"}, strings.Fields(args)...)...)
		require.ErrorContains(t, err, says)
		assert.Equal(t, 2, exitCode(err))
	}
}
