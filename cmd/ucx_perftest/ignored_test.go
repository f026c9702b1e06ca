package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/perf"
)

// Options that a test does not use are reported, in UCX's words and once.
//
// Source: check_params of UCX 1.13's perftest_run.c.
func TestIgnoredOptions(t *testing.T) {
	for line, want := range map[string][]string{
		"-t tag_lat -x shm -d memory":                     {"-x 'shm' ignored for UCP test; see NOTE in help message", "-d 'memory' ignored for UCP test; see NOTE in help message"},
		"-t tag_lat -D zcopy -W 3":                        {"-D 'zcopy' ignored for UCP test", "-W '3' ignored for UCP test"},
		"-t am_lat -x shm -U -z -H 8":                     {"-U ignored for UCT test", "-z ignored for UCT test"},
		"-t am_lat -x shm -W 5 -r recv":                   {"-W '5' ignored by am_lat"},
		"-t am_lat -x shm --sharing static":               {"--sharing 'static' ignored for UCT test"},
		"-t tag_lat --sharing static":                     nil,
		"-t put_bw -x shm -H 16 -i 16":                    {"-H '16' ignored by put_bw"},
		"-t tag_lat -H 4 -y -o -U -C":                     {"-H '4' ignored by tag_lat", "-y ignored by tag_lat", "-o ignored by tag_lat"},
		"-t ucp_am_bw -U -C -y -H 4 -z":                   {"-U ignored by ucp_am_bw", "-C ignored by ucp_am_bw"},
		"-t ucp_fadd -z -o -B":                            {"-z ignored by ucp_fadd"},
		"-t ucp_put_lat -o -z -i 16":                      {"-o ignored by ucp_put_lat", "-i '16' ignored for UCP test"},
		"-t tag_bw -B":                                    {"-B ignored by tag_bw"},
		"-t tag_bw -B -z -r recv":                         nil,
		"-t verbs_send_lat --post-list 4":                 {"--post-list '4' ignored by verbs_send_lat"},
		"-t verbs_read_lat --post-list 4 -O 8":            nil,
		"-t verbs_send_lat -x rc -C":                      {"-x 'rc' ignored for verbs test", "-C ignored for verbs test"},
		"-t ucp_am_lat -H 8 -A thread_spinlock -D contig": nil,
		"-t am_lat -x shm -d memory -M single":            nil,
		"-t verbs_send_lat -d inproc -D zcopy":            nil,
	} {
		t.Run(line, func(t *testing.T) {
			_, errs, err := command(append([]string{"-l", "-n", "10"}, strings.Fields(line)...)...)
			require.NoError(t, err)
			var got []string
			for _, m := range regexp.MustCompile(`(?m)^ucx_perftest: warning: (.*)$`).FindAllStringSubmatch(errs, -1) {
				got = append(got, m[1])
			}
			assert.ElementsMatch(t, want, got)
			_, errs, err = command(append([]string{"-l", "-q", "-n", "10"}, strings.Fields(line)...)...)
			require.NoError(t, err)
			assert.Empty(t, errs)
		})
	}
	lines := file(t, "lines", "a -t tag_lat\nb -t am_lat\nc -t tag_lat -s 9\n")
	_, errs, err := command("-l", "-n", "10", "-x", "shm", "-b", lines)
	require.NoError(t, err)
	assert.Equal(t, "ucx_perftest: warning: -x 'shm' ignored for UCP test; see NOTE in help message\n", errs)
}

// The parameters in the JSON are those of the run as it was.
func TestJSONTellsWhatWasRun(t *testing.T) {
	for line, want := range map[string]perf.Params{
		"-t tag_lat -n 50 -x shm -D zcopy":  {Test: "tag_lat", Warmup: 5, Window: 1, Threads: "single"},
		"-t tag_bw -n 50 -w 3 -M multi -U":  {Test: "tag_bw", Warmup: 3, Window: 32, Threads: "multi", Unexpected: true},
		"-t ucp_am_lat -n 50 -w 0":          {Test: "ucp_am_lat", Window: 1, Threads: "single"},
		"-t am_bw -n 50 -x shm -U":          {Test: "am_bw", Warmup: 5, Window: 1, Transport: "shm", Layout: perf.Short, AMWindow: 127, AMHeader: 8},
		"-t put_lat -n 50 -x shm -D bcopy":  {Test: "put_lat", Warmup: 5, Window: 1, Transport: "shm", Layout: perf.Bcopy},
		"-t ucp_get -n 50 --sharing Static": {Test: "ucp_get", Warmup: 5, Window: 1, Threads: "single", Sharing: "static"},
		"-t verbs_send_lat -n 50 -x shm":    {Test: "verbs_send_lat", Warmup: 5, Window: 1, Layout: perf.Short},
		"-t verbs_read_lat -n 50":           {Test: "verbs_read_lat", Warmup: 5, Window: 1, Layout: perf.Zcopy},
		"-t verbs_send_bw -n 50 -s 5000":    {Test: "verbs_send_bw", Warmup: 5, Window: 32, Layout: perf.Zcopy, Sizes: []int64{5000}},
		"-t verbs_send_lat -n 50 -T 2":      {Test: "verbs_send_lat", Warmup: 5, Window: 1, Layout: perf.Short, ThreadCount: 2},
	} {
		t.Run(line, func(t *testing.T) {
			out, _, err := command(append([]string{"-l", "-q", "-f", "--json"}, strings.Fields(line)...)...)
			require.NoError(t, err)
			var o struct{ Result struct{ Params perf.Params } }
			require.NoError(t, json.Unmarshal([]byte(lastLine(out)), &o))
			want.Iterations, want.Rank, want.ThreadCount = 50, 50, max(want.ThreadCount, 1)
			if want.Sizes == nil {
				want.Sizes = []int64{8}
			}
			assert.Equal(t, want, o.Result.Params)
		})
	}
}
