package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// accounts returns what --sharing --json prints.
func accounts(t *testing.T, args ...string) []sharingView {
	t.Helper()
	var doc struct {
		Sharing []sharingView `json:"sharing"`
	}
	require.NoError(t, json.Unmarshal([]byte(info(t, append([]string{"--json", "--sharing"}, args...)...)), &doc))
	return doc.Sharing
}

// The paper's six categories with 16 threads, figure 12 and Table I. The objects are real.
func TestSharingOfSixteenThreads(t *testing.T) {
	views := accounts(t, "--threads", "16")
	require.Len(t, views, 6)
	for i, want := range []struct {
		policy              string
		pages, uuars, waste uint64
		percent             float64
		queues              uint64 // QPs, and as many CQs
		mb, withoutSpares   string
	}{
		{"mpi-everywhere", 128, 256, 240, 100, 16, "5.39", "5.39"},
		{"2xdynamic", 40, 80, 64, 31.25, 32, "3.03", "1.64"},
		{"dynamic", 24, 48, 32, 18.75, 16, "1.64", "1.64"},
		{"shared-dynamic", 16, 32, 16, 12.5, 16, "1.64", "1.64"},
		{"static", 8, 16, 1, 6.25, 16, "1.64", "1.64"},
		{"mpi-threads", 8, 16, 15, 6.25, 1, "0.34", "0.34"},
	} {
		v := views[i]
		t.Run(want.policy, func(t *testing.T) {
			assert.Equal(t, want.policy, v.Policy)
			assert.Equal(t, want.pages, v.Pages, "UAR pages")
			assert.Equal(t, want.uuars, v.UUARs, "uUARs")
			assert.Equal(t, want.waste, v.Wasted, "wasted uUARs")
			assert.Equal(t, want.uuars-want.waste, v.Used, "used uUARs")
			assert.InDelta(t, want.percent, v.Percent, 0, "hardware use")
			assert.Equal(t, want.queues, v.QPs, "queue pairs")
			assert.Equal(t, want.queues, v.CQs, "completion queues")
			assert.Equal(t, want.mb, fmt.Sprintf("%.2f", mebibytes(v.Modelled)), "MB")
			assert.Equal(t, want.withoutSpares, fmt.Sprintf("%.2f", mebibytes(v.WithoutSpares)), "MB without spares")
			assert.NotZero(t, v.Own)
			assert.NotEmpty(t, v.Reasons)
		})
	}
}

// The stencil of the paper, figure 14: 16 threads in P processes, two queue pairs on one CQ each.
func TestSharingOfStencil(t *testing.T) {
	uuars := map[string][5]uint64{ // 16.1, 8.2, 4.4, 2.8, 1.16
		"mpi-everywhere": {256, 256, 256, 256, 256},
		"2xdynamic":      {384, 256, 192, 160, 144},
		"dynamic":        {320, 192, 128, 96, 80},
		"shared-dynamic": {288, 160, 96, 64, 48},
		"static":         {256, 128, 64, 32, 16},
		"mpi-threads":    {256, 128, 64, 32, 16},
	}
	for i, processes := range []int{16, 8, 4, 2, 1} {
		threads := 16 / processes
		for _, v := range accounts(t, "--threads", fmt.Sprint(threads), "--qps-per-thread", "2", "--processes", fmt.Sprint(processes)) {
			name := fmt.Sprintf("%d.%d %s", processes, threads, v.Policy)
			assert.Equal(t, uuars[v.Policy][i], v.UUARs, name)
			qps := uint64(32)
			switch v.Policy {
			case "2xdynamic":
				qps = 64
			case "mpi-threads":
				qps = uint64(2 * processes)
			}
			assert.Equal(t, qps, v.QPs, name)
			assert.Equal(t, qps/2, v.CQs, name)
			assert.InDelta(t, 100*float64(v.UUARs)/256, v.Percent, 0, name)
		}
	}
}

// TestSharingText compares the table with a file. The bytes of the software device's objects change
// with its code, so they are masked.
func TestSharingText(t *testing.T) {
	const file = "testdata/sharing.txt"
	own := regexp.MustCompile(`(?m) +\d+\.\d$`)
	text := own.ReplaceAllString(info(t, "--sharing", "--threads", "16"), "      own")
	text += own.ReplaceAllString(info(t, "--sharing", "2xdynamic", "--threads", "4", "--processes", "2", "--qps-per-thread", "2"), "      own")
	text += own.ReplaceAllString(info(t, "--sharing", "--threads", "1025"), "      own")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), text)
}

func TestSharingRefused(t *testing.T) {
	for args, says := range map[string]string{
		"--sharing":                                              "--sharing needs the number of threads: give --threads",
		"--sharing dynamc --threads 4":                           `unknown sharing policy "dynamc"; did you mean dynamic?`,
		"--sharing warp --threads 4":                             "known are mpi-everywhere, 2xdynamic,",
		"--sharing dynamic static --threads 4":                   `unexpected argument "static"`,
		"--sharing --threads 0":                                  "--threads 0: want a number from 1 to 65536",
		"--sharing --threads many":                               "--threads many: want a number",
		"--sharing --threads 4 --processes -1":                   "--processes -1: want a number",
		"--sharing --threads 4 --qps-per-thread 1e3":             "--qps-per-thread 1e3: want a number",
		"--sharing --threads 65536 --processes 2":                "131072 queue pairs of all threads: want at most 65536",
		"--sharing --threads 65536 --processes 65536":            "want at most 65536",
		"-v --threads 4":                                         "--threads is a number of --sharing, which is not given",
		"-v --processes 4":                                       "--processes is a number of --sharing, which is not given",
		"--sharing --threads 4 --json -s":                        "not --system",
		"--sharing 2xdynamic --threads 129":                      "policy 2xdynamic: 129 threads need 258 thread domains of level 1 in a context, and there are 256: no resource",
		"--sharing mpi-everywhere --threads 600 --processes 2":   "policy mpi-everywhere: context 425 of 600: ",
		"--sharing shared-dynamic --threads 1 --processes 10000": "it needs UAR pages",
	} {
		t.Run(args, func(t *testing.T) {
			out, _, err := try(strings.Fields(args)...)
			require.ErrorContains(t, err, says)
			assert.Empty(t, out)
		})
	}
}

// TestSharingOfAdapter: libmlx5's variables change the contexts.
func TestSharingOfAdapter(t *testing.T) {
	t.Setenv("MLX5_TOTAL_UUARS", "4")
	t.Setenv("MLX5_NUM_LOW_LAT_UUARS", "2")
	v := accounts(t, "--threads", "4096")
	assert.Equal(t, "mpi-everywhere", v[0].Policy)
	assert.EqualValues(t, 8192, v[0].Pages, "all pages of the device")
	assert.EqualValues(t, 4, v[5].UUARs)
	t.Setenv("MLX5_TOTAL_UUARS", "600")
	_, _, err := try("--sharing", "--threads", "4")
	assert.ErrorContains(t, err, "MLX5_TOTAL_UUARS=600, want 1 to 512")
}
