package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bench is a session whose runs answer at once.
func bench(pairs int, measure func(t tool, args []string) (figures, error)) *session {
	return &session{
		plan: plan{pairs: pairs, length: time.Second},
		log:  new(bytes.Buffer),
		measure: func(_ context.Context, t tool, args []string) (figures, error) {
			return measure(t, args)
		},
	}
}

func TestRunsAreInterleavedAndCalibrated(t *testing.T) {
	var runs []string
	s := bench(2, func(t tool, args []string) (figures, error) {
		runs = append(runs, t.name+" "+strings.Join(args, " "))
		return figures{rate: 2e6}, nil
	})
	put := row{test: "put", size: 8, metric: rate, variants: oneSided, ucx: []string{"-x", "posix"}}
	lat := row{test: "lat", size: 1 << 20, metric: latency, variants: printed}
	results := s.all(t.Context(), []row{put, lat})
	require.Len(t, results, 3)
	first := slices.Index(runs, "goucx -t put -s 8 -n 2000000")
	require.Positive(t, first, runs)
	one := []string{
		"goucx -t put -s 8 -n 2000000",
		"goucx -t put -s 8 -n 2000000 --stamp-each",
		"UCX -t put -s 8 -n 2000000 -x posix",
		"goucx -t lat -s 1048576 -n 1000000",
		"UCX -t lat -s 1048576 -n 1000000",
	}
	assert.Equal(t, append(slices.Clone(one), one...), runs[first:])
	for _, r := range results {
		assert.Len(t, r.pairs, 2)
	}
}

func TestCalibrationGrowsUntilARunIsLong(t *testing.T) {
	var counts []int
	s := bench(1, func(_ tool, args []string) (figures, error) {
		n, err := strconv.Atoi(args[slices.Index(args, "-n")+1])
		require.NoError(t, err)
		counts = append(counts, n)
		return figures{rate: min(1e8, 50*float64(n))}, nil // short runs are slow
	})
	n, err := s.count(t.Context(), tool{}, row{size: 8, metric: rate}, row{test: "x", size: 8}.ucxArgs)
	require.NoError(t, err)
	assert.Equal(t, 100_000_000, n)
	assert.Greater(t, len(counts), 2)
	assert.True(t, slices.IsSorted(counts))
}

func TestARowThatFailsLeavesTheOthers(t *testing.T) {
	calls := 0
	s := bench(3, func(tl tool, args []string) (figures, error) {
		if slices.Contains(args, "bad") && tl.name == "UCX" {
			if calls++; calls > 2 { // good while it is calibrated
				return figures{}, errors.New("out of order")
			}
		}
		return figures{rate: 1e6}, nil
	})
	results := s.all(t.Context(), []row{
		{test: "bad", size: 8, metric: rate, variants: printed},
		{test: "good", size: 8, metric: rate, variants: printed},
	})
	require.ErrorContains(t, results[0].err, "out of order")
	require.NoError(t, results[1].err)
	assert.Len(t, results[1].pairs, 3)
	assert.Less(t, len(results[0].pairs), 3)
	assert.ErrorContains(t, verdict(results), "bad 8: not measured: UCX: out of order")
}

func TestASecondTryCounts(t *testing.T) {
	failed := false
	s := bench(1, func(_ tool, args []string) (figures, error) {
		if n := args[slices.Index(args, "-n")+1]; n == "1000000" && !failed {
			failed = true
			return figures{}, errors.New("port in use")
		}
		return figures{rate: 1e6}, nil
	})
	results := s.all(t.Context(), []row{{test: "x", size: 8, metric: rate, variants: printed}})
	require.NoError(t, results[0].err)
	assert.True(t, failed)
	assert.Contains(t, s.log.(*bytes.Buffer).String(), "second try: port in use")
}

// table of two results: a must that holds by ratio 0.5, one that fails by 0.9.
func twoResults() []*result {
	held := &result{row: allRows[0], variant: allRows[0].variants[0]}
	put := allRows[slices.IndexFunc(allRows, func(r row) bool { return r.title() == "ucp_put_bw 8" })]
	missed := &result{row: put, variant: put.variants[1]}
	for i := range 11 {
		x := float64(i)
		held.pairs = append(held.pairs, pair{sample{0.08 + x/1e7, 50, 60}, sample{0.2, 60, 40}})
		missed.pairs = append(missed.pairs, pair{sample{9e7 + x, 50, 50}, sample{1e8, 50, 50}})
	}
	return []*result{held, missed, {row: allRows[1], variant: allRows[1].variants[0], err: errors.New("gone")}}
}

func TestVerdict(t *testing.T) {
	err := verdict(twoResults())
	require.ErrorContains(t, err, "ucp_put_bw 8 --stamp-each: its must does not hold")
	require.ErrorContains(t, err, "am_lat 8: not measured: gone")
	assert.NotContains(t, err.Error(), "tag_lat")
	assert.NoError(t, verdict(twoResults()[:1]))
}

func TestDocument(t *testing.T) {
	d := document{
		machine: machine{date: "2026-01-02", host: "box", lines: "cpu     2 x Thing\n"},
		plan:    plan{pairs: 11, length: time.Second, server: 1, dir: t.TempDir(), ours: "bin/ucx_perftest", ucx: "ucx_perftest", filter: regexp.MustCompile("")},
		results: twoResults(),
	}
	text := d.markdown()
	rows := map[string][]string{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) != columns+2 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[cells[1]] = cells[2:]
	}
	assert.Equal(t, []string{"8 B", "0.08", "0.2", "us", "0.400", "0.400-0.400", "≤ 0.48", "≤ 0.36", "holds", "11 near", ""}, rows["tag_lat"])
	assert.Equal(t, []string{"8 B", "90", "100", "M/s", "0.900", "0.900-0.900", "≥ 1.1", "≥ 1.4", "**fails**", "11 near", ""}, rows["ucp_put_bw `--stamp-each`"])
	assert.Equal(t, "**not measured**", rows["am_lat"][8])
	big := result{row: row{size: 1 << 20, metric: rate}}
	assert.Equal(t, "20.97 GB/s", big.figure(20000)+" "+big.unit())
	for _, want := range []string{
		"cpu     2 x Thing", "covers 98.8 %", "UCX_TLS=shm,self bin/ucx_perftest -c 1 -p PORT\n",
		"am_lat 8: goucx -x shm -d memory -D short; UCX -x posix -d memory -D short",
		"UCX_SOFT_LINK=udp UCX_SOFT_ADDR=127.0.0.1 bin/ucx_perftest -c 0 -p PORT localhost -f -v -t TEST",
		"UCX_SOFT_LINK=inproc bin/ucx_perftest -c 0,1 -l -T 2 -f -v -t TEST",
		"UCX_TLS=sm ucx_perftest -c 0 -l -f -v -t TEST",
	} {
		assert.Contains(t, text, want)
	}

	var log bytes.Buffer
	for _, name := range []string{"2026-01-02-box-ucx", "2026-01-02-box-ucx-2"} {
		require.NoError(t, d.store(&log))
		stored, err := os.ReadFile(filepath.Join(d.plan.dir, name+".md"))
		require.NoError(t, err)
		assert.Contains(t, string(stored), "["+name+".csv]("+name+".csv)")
		f, err := os.Open(filepath.Join(d.plan.dir, name+".csv"))
		require.NoError(t, err)
		pairs, err := csv.NewReader(f).ReadAll()
		require.NoError(t, errors.Join(err, f.Close()))
		assert.Len(t, pairs, 1+11+11)
		assert.Equal(t, []string{"tag_lat", "", "8", "", "1", "us", "0.08", "0.2", "0.4000", "50", "60", "60", "40"}, pairs[1])
	}
}

func TestOptions(t *testing.T) {
	for says, args := range map[string][]string{
		"at least one pair":           {"-n", "0"},
		"both on core 2":              {"-client-cpu", "2", "-server-cpu", "2"},
		"-t: error parsing regexp":    {"-t", "("},
		"unexpected argument":         {"tag_lat"},
		"from 10ms to 1m":             {"-time", "1h"},
		"flag provided but not defin": {"-x"},
	} {
		_, err := parse(args, new(bytes.Buffer))
		assert.ErrorContains(t, err, says)
	}
	p, err := parse([]string{"-quick", "-t", "^tag_lat"}, new(bytes.Buffer))
	require.NoError(t, err)
	assert.Equal(t, quickPairs, p.pairs)
	assert.Empty(t, p.dir, "a look is not stored")
	assert.Len(t, p.choose(allRows), 11)
	p, err = parse([]string{"-quick", "-n", "5", "-o", "here"}, new(bytes.Buffer))
	require.NoError(t, err)
	assert.Equal(t, 5, p.pairs)
	assert.Equal(t, quickLength, p.length)
	assert.Equal(t, "here", p.dir)
	assert.ErrorContains(t, run(t.Context(), []string{"-t", "warp"}, nil, new(bytes.Buffer)), "matches no test")
}

// What both tools get, and what ours alone is set to.
func TestOptionsOfBoth(t *testing.T) {
	var runs []string
	s := bench(1, func(t tool, args []string) (figures, error) {
		runs = append(runs, strings.TrimSpace(strings.Join(t.env[1:], " ")+" "+t.name+" "+strings.Join(args, " ")))
		return figures{rate: 2e6}, nil
	})
	r := row{test: "lat", size: 8, metric: latency, both: "-E sleep", variants: []variant{{env: "UCX_SPIN_TIME=0", must: 1.1, aim: 1}, {}}}
	results := s.all(t.Context(), []row{r})
	assert.Equal(t, []string{
		"UCX_SPIN_TIME=0 goucx -t lat -s 8 -n 1000000 -E sleep", "goucx -t lat -s 8 -n 1000000 -E sleep", "UCX -t lat -s 8 -n 1000000 -E sleep",
	}, runs[len(runs)-3:])
	assert.Equal(t, "lat 8 -E sleep", r.title())
	assert.Equal(t, "lat `-E sleep UCX_SPIN_TIME=0`", results[0].cells()[0])
	assert.Equal(t, "lat `-E sleep`", results[1].cells()[0])
}

// A test that is ours alone is compared with one of UCX's of another name, each
// with its settings; of UCX's that runs in one process, the figure is doubled.
func TestRowsAgainstOthers(t *testing.T) {
	var runs []string
	s := bench(1, func(t tool, args []string) (figures, error) {
		runs = append(runs, strings.Join(append(t.env, args...), " "))
		return figures{rate: 2e6}, nil
	})
	r := row{test: "verbs_write_lat", against: "tag_lat", size: 8, metric: latency, over: loopback, variants: []variant{{option: "-O 32"}}}
	two := row{test: "verbs_send_lat", against: "tag_lat", size: 8, metric: latency, over: program, form: oneThread, ucxForm: oneThread, variants: printed}
	own := row{test: "tag_bw", size: 8, metric: rate, over: loopbackRC, both: "-T 2", ownBase: true, variants: sharing}
	results := s.all(t.Context(), []row{r, two, own})
	assert.Equal(t, []string{
		"UCX_SOFT_LINK=udp UCX_SOFT_ADDR=127.0.0.1 -t verbs_write_lat -s 8 -n 1000000 -O 32",
		"UCX_TLS=tcp,self UCX_NET_DEVICES=lo -t tag_lat -s 8 -n 1000000",
		"UCX_SOFT_LINK=inproc -t verbs_send_lat -s 8 -n 1000000",
		"UCX_TLS=sm -t tag_lat -s 8 -n 1000000",
		"UCX_TLS=rc UCX_NET_DEVICES=lo -t tag_bw -s 8 -n 2000000 -T 2 --sharing dynamic",
		"UCX_TLS=rc UCX_NET_DEVICES=lo -t tag_bw -s 8 -n 2000000 -T 2",
	}, runs[len(runs)-6:])
	assert.Equal(t, "tag_bw 8 -T 2 over rc against goucx", own.title())
	assert.Equal(t, "verbs_write_lat 8 against tag_lat", r.title())
	assert.Equal(t, "verbs_send_lat 8 one thread against tag_lat", two.title())
	assert.Equal(t, "verbs_write_lat against tag_lat `-O 32`", results[0].cells()[0])
	assert.InDelta(t, 1, results[0].ratios()[0], 1e-9)
	assert.InDelta(t, 0.5, results[1].ratios()[0], 1e-9)
}

// TestRows holds the table to its own rules.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range allRows {
		assert.False(t, seen[r.title()], r.title())
		seen[r.title()] = true
		require.NotEmpty(t, r.variants)
		for _, v := range r.variants {
			if v.must == 0 {
				assert.Zero(t, v.aim)
				continue
			}
			assert.Equal(t, r.metric == latency, v.aim < v.must, r.title())
		}
	}
}
