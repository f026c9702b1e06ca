package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/perf"
)

func TestParse(t *testing.T) {
	for args, want := range map[string]func(o *options){
		"":                     func(*options) {},
		"node1":                func(o *options) { o.host = "node1" },
		"node1 -t tag_lat":     func(o *options) { o.host, o.Test = "node1", "tag_lat" },
		"-t am_bw node1 -s 64": func(o *options) { o.host, o.Test, o.Sizes = "node1", "am_bw", []int64{64} },
		"-ttag_lat -n5 -w7":    func(o *options) { o.Test, o.Iterations, o.Warmup = "tag_lat", 5, 7 },
		"-s 16,48,8192:3,14":   func(o *options) { o.Sizes = []int64{16, 48, 8192, 8192, 8192, 14} },
		"-s 8k,1KiB:2 -i 0x800 -H 1k": func(o *options) {
			o.Sizes, o.Stride, o.AMHeader = []int64{8192, 1024, 1024}, 2048, 1024
		},
		"-c 0,2-4 -p 99 -6":         func(o *options) { o.cpus, o.port, o.ipv6 = []int{0, 2, 3, 4}, 99, true },
		"-O 4 -i 128 -R 99.9 -W 63": func(o *options) { o.Window, o.Stride, o.Rank, o.AMWindow = 4, 128, 99.9, 63 },
		"-NfvX": func(o *options) {
			o.style.Numeric, o.style.FinalOnly, o.style.CSV, o.style.Extra = true, true, true, true
		},
		"-l -oBCezVUIy":                 func(o *options) { o.loopback = true; allFlags(&o.Params) },
		"-x posix -d memory -D zcopy":   func(o *options) { o.Transport, o.Device, o.Layout = "posix", "memory", perf.Zcopy },
		"-D contig -H 16 -M multi":      func(o *options) { o.AMHeader, o.Threads = 16, "multi" },
		"-b one -b two":                 func(o *options) { o.batch = []string{"one", "two"} },
		"-m host,host -T 1 -E poll":     func(*options) {},
		"-T 4:1 -E sleep":               func(o *options) { o.ThreadCount, o.Sleep = 4, true },
		"-A thread_spinlock -r recv":    func(*options) {},
		"-A thread -L thread -a host":   func(*options) {},
		"-e none -t tag_lat":            func(o *options) { o.Test = "tag_lat" },
		"-e peer node1":                 func(o *options) { o.ErrorHandling, o.host = true, "node1" },
		"-t tag_lat -efailover -l":      func(o *options) { o.Test, o.ErrorHandling, o.loopback = "tag_lat", true, true },
		"-lIe failover":                 func(o *options) { o.loopback, o.Wakeup, o.ErrorHandling = true, true, true },
		"-e node1":                      func(o *options) { o.ErrorHandling, o.host = true, "node1" },
		"-e -- peer":                    func(o *options) { o.ErrorHandling, o.host = true, "peer" },
		"--error-handling=failover":     func(o *options) { o.ErrorHandling = true },
		"-P 0 -q --wait 300ms":          func(o *options) { o.quiet, o.wait = true, 300*time.Millisecond },
		"--json --percentiles -h":       func(o *options) { o.style.JSON, o.style.Percentiles, o.help = true, true, true },
		"-t tag_lat -m heap":            func(o *options) { o.Test, o.SendHeap, o.RecvHeap = "tag_lat", true, true },
		"-t tag_lat -m host,heap":       func(o *options) { o.Test, o.RecvHeap = "tag_lat", true },
		"--test=put_bw --stamp-each -f": func(o *options) { o.Test, o.StampEach, o.style.FinalOnly = "put_bw", true, true },
	} {
		t.Run(args, func(t *testing.T) {
			o, w := newOptions(), newOptions()
			require.NoError(t, o.parse(strings.Fields(args)))
			want(w)
			o.given = nil
			assert.Equal(t, w, o)
		})
	}
}

func allFlags(p *perf.Params) {
	p.Unprogressed, p.NoPin, p.Wildcard, p.ErrorHandling, p.Registered, p.Validate = true, true, true, true, true, true
	p.Unexpected, p.Wakeup, p.AMCopy = true, true, true
}

func TestParseErrors(t *testing.T) {
	for args, want := range map[string]string{
		"-t foo":                  `unknown test "foo"; known are am_lat`,
		"-t tag_la":               `unknown test "tag_la"; did you mean tag_lat?`,
		"--tst tag_lat":           "unknown flag: --tst; did you mean --test?",
		"--stamp-eech":            "did you mean --stamp-each?",
		"-Q":                      "unknown shorthand flag: 'Q' in -Q",
		"--nonsense":              "unknown flag: --nonsense",
		"-s abc":                  `size "abc": not understood: want bytes`,
		"-s 1,,2":                 `size ""`,
		"-s 8:0":                  "a count is 1-4096",
		"-s 8:4096,8":             "more than 4096 sizes",
		"-s 8:999999999":          "a count is 1-4096",
		"-s 99999999999999999999": "too large",
		"-n abc":                  "invalid syntax",
		"-n":                      "flag needs an argument",
		"-R 200":                  "a percentile rank is 0-100",
		"-R NaN":                  "a percentile rank is 0-100",
		"-p 0":                    "a port is 1-65535",
		"-p 65536":                "a port is 1-65535",
		"-c 0-":                   "",
		"-D foo":                  "known are short bcopy zcopy contig",
		"-M foo":                  "known are single serialized multi",
		"--wait -1s":              "a time above 0",
		"-m gpu":                  "known are host heap cuda",
		"-m host,cuda":            `-m "host,cuda": not supported: goucx has host memory only; supported is host heap`,
		"--error-handling=x":      "known are none peer failover",
		"-e peer a b":             `unexpected "b" after`,
		"-H -1":                   "want bytes, as 4096, 4k or 0x1000",
		"-T 2:64":                 `-T "2:64": blocks "64": not supported: goucx has no GPU`,
		"-T x":                    "invalid syntax",
		"-E nap":                  "known are poll sleep",
		"-D iov":                  `-D "iov": not supported: goucx sends one piece`,
		"-D shortiov":             "not supported: goucx sends one piece",
		"-A signal":               "not supported: timers run in a goroutine",
		"-r recv_data":            "not supported: goucx has no streams",
		"-P 1":                    "not supported: goucx finds the other side by",
		"-K mlx5_0:1":             "not supported: goucx has no InfiniBand subnet",
		"-g 10.0.0.1":             "not supported: goucx has no daemon",
		"-G 10.0.0.1:1338":        "not supported: goucx has no daemon",
		"-a cuda:0,host":          `-a "cuda:0,host": not supported: goucx has no GPU`,
		"-a x":                    "known are host cuda",
		"-L grid":                 "not supported: goucx has no GPU",
		"-F 64":                   "not supported: goucx has no GPU",
		"-Y random":               "not supported: goucx has no GPU",
		"node1 node2":             `unexpected "node2" after the server's host name "node1"`,
		"-l node1 -t tag_bw":      "is not allowed with -l",
	} {
		t.Run(args, func(t *testing.T) {
			err := newOptions().parse(strings.Fields(args))
			require.ErrorContains(t, err, want)
			if strings.Contains(want, "not supported: ") {
				assert.ErrorIs(t, err, errors.ErrUnsupported)
			}
		})
	}
}

// Every option of UCX 1.13's tool and of the current release's is in the table, with an argument
// where UCX's has one. That of -e came after 1.13.
//
// Source: TEST_PARAMS_ARGS and the getopt string of UCX 1.13's perftest; the current one's -h.
func TestLettersOfUCX(t *testing.T) {
	const getopt = "t:n:s:W:O:w:D:i:H:oSCIqM:r:E:T:d:x:A:BUem:R:lzp:b:6NfvVc:P:h" + "yXK:a:L:F:Y:g:G:"
	rows := map[string]option{}
	for _, g := range groups {
		for _, r := range g.rows {
			_, twice := rows[r.letter]
			assert.False(t, twice && r.letter != "", r.letter)
			rows[r.letter] = r
		}
	}
	for i, c := range getopt {
		if c == ':' || c == 'S' { // -S is of no use to people in UCX
			continue
		}
		r, ok := rows[string(c)]
		if assert.True(t, ok, "-%c", c) {
			takes := i+1 < len(getopt) && getopt[i+1] == ':'
			assert.Equal(t, takes, r.arg != "" && r.bare == "", "-%c", c)
			assert.NotEmpty(t, r.help, "-%c", c)
		}
	}
}

// The help is made of the tables that run.
func TestHelp(t *testing.T) {
	out, _, err := command("-h")
	require.NoError(t, err)
	for _, g := range groups {
		for _, r := range g.rows {
			assert.Contains(t, out, " "+r.name(), "%s", r.long)
		}
	}
	for _, row := range perf.Tests() {
		assert.Contains(t, out, row.Name+" - "+row.API.String()+" "+row.Desc)
	}
	file := filepath.Join("testdata", "help.txt")
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(out), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), out)
}

// An empty word, of a variable that is not set, does not make a server.
func TestEmptyHost(t *testing.T) {
	_, _, err := command("", "-t", "tag_lat")
	require.ErrorContains(t, err, "the server's host name is empty")
	assert.Equal(t, 2, exitCode(err))
}

func TestDifferences(t *testing.T) {
	server := newOptions()
	require.NoError(t, server.parse(strings.Fields("-t tag_lat -s 64 -p 99 -f")))
	client := perf.Defaults()
	client.Test, client.Sizes = "tag_lat", []int64{64}
	assert.Empty(t, server.differences(client), "what was not given may differ")
	client.Sizes, client.Iterations = []int64{8}, 5
	assert.Equal(t, []string{"-s is 64 here and 8 there"}, server.differences(client))
	client.Test = "put_bw"
	assert.Equal(t, []string{"-t is tag_lat here and put_bw there", "-s is 64 here and 8 there"}, server.differences(client))
	assert.Empty(t, newOptions().differences(client))
}

func TestVersion(t *testing.T) {
	out, errs, err := command("--version")
	require.NoError(t, err)
	assert.Empty(t, errs)
	assert.Regexp(t, `^ucx_perftest of goucx \S+, revision .+, go\S+ \w+/\w+\n$`, out)
}

// Errors name what there is.
func TestErrorsNameWhatThereIs(t *testing.T) {
	for line, want := range map[string]string{
		"-x warp -t am_lat": `unknown transport "warp"; known are self shm sm mm posix rc rc_verbs rc_v ib ud ud_verbs ud_v`,
		"-T 0 -t tag_lat":   "number of threads 0 is out of range: 1-256", "-T -1 -t tag_lat": "number of threads -1 is out of range: 1-256",
	} {
		_, _, err := command(append([]string{"-l", "-q", "-n", "10"}, strings.Fields(line)...)...)
		require.ErrorContains(t, err, want, line)
		assert.NotContains(t, err.Error(), "ud_v ib", line)
	}
}
