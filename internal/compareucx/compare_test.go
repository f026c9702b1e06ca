package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/perf"
)

func TestRowShape(t *testing.T) {
	for text, want := range map[string]string{
		"  20,0.363,15.552,15.552,0.00,0.00,639,639":       "20,#,#,#,#,#,#,#",
		"tests,8,20,0.363,15.552,15.552,0.00,0.00,639,639": "tests,8,#,#,#,#,#,#,#,#",
		"20,748.086,0.02,2680":                             "20,#,#,#",
		"iterations,50.0_percentile_lat,avg_lat,overall":   "",
	} {
		got, _ := rowShape(text, true)
		assert.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"Final:                 2,000      0.335     0.398     0.388       19.18      19.66     2,513,735     2,576,432": "Final: 2000 # # # # # # #",
		"lat/8                 2000      0.335     0.398     0.388       19.18      19.66     2513735     2576432":       "lat/8 2000 # # # # # # #",
		"              2000      0.3     0.4     0.4       19.2      19.7     25     26  shm/memory":                     "2000 # # # # # # # shm/memory",
		"|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |":   "",
		"| Message size: 8                                                                                          |":   "",
	} {
		got, _ := rowShape(text, false)
		assert.Equal(t, want, got, text)
	}
}

func TestSplitOutput(t *testing.T) {
	columns, rows := splitOutput("+---+\n|  a |   b |\n\n[thread 0]  5 1 2 3 4 5 6 7\nFinal:  9 1 2 3 4 5 6 7\n", false)
	assert.Equal(t, []string{"+---+", "| a | b |"}, columns)
	assert.Equal(t, []string{"Final: 9 # # # # # # #"}, rows)
	assert.Equal(t, []string{"Waiting for connection...", "Accepted connection from HOST", "| API: x |"},
		serverBox("Waiting for connection...\nAccepted connection from 127.0.0.1:57564\n| API:   x   |\n"))
}

func TestCommonOutput(t *testing.T) {
	frame := "+" + strings.Repeat("-", 106) + "+\n"
	columns := "+--------------+-----+\n| a |\n"
	assert.Equal(t, columns, commonOutput(frame+"| Transport:    shm/memory  |\n"+columns))
	assert.Equal(t, frame, commonOutput(frame+"| Transport:    shm/memory  |\n"+frame), "a server with a batch")
	box := frame + "| API: x |\n| Transport:    shm/memory  |\n" + frame
	assert.Equal(t, frame+"| API: x |\n"+frame, commonOutput(box))
	assert.Equal(t, "a\nb\n", commonOutput("a\n[1795.150540] [vm:3:0] libperf.c:519 UCX ERROR x\nb\n"))
}

func TestDiffer(t *testing.T) {
	good := outcome{status: statusGood, server: statusGood, columns: []string{"a"}, rows: []string{"1"}, box: []string{"b"}}
	assert.Empty(t, differ(good, good))
	for want, change := range map[string]func(o *outcome){
		kindStatus:  func(o *outcome) { o.status, o.rows = statusFails, nil },
		kindServer:  func(o *outcome) { o.server = statusWaits },
		kindColumns: func(o *outcome) { o.columns = nil },
		kindRows:    func(o *outcome) { o.rows = []string{"1", "2"} },
		kindBox:     func(o *outcome) { o.box = []string{"b", "c"} },
	} {
		other := good
		change(&other)
		assert.Equal(t, []string{want}, differ(good, other))
	}
	fails := good
	fails.status = statusFails
	help := fails
	help.columns = []string{"Usage: ..."}
	assert.Empty(t, differ(help, fails), "the columns of a failed run are not compared")
}

// The verdict names a difference that is not listed, a listed one that does not occur, and a failure
// without its reason in one line.
func TestVerdict(t *testing.T) {
	listed := is("-D iov", kindStatus, "`-D iov`", "why")
	defer func(before []*difference) { differences = before }(differences)
	differences = []*difference{listed}
	good := outcome{status: statusGood, server: statusGood}
	fails := outcome{status: statusFails, server: statusFails, errors: []string{"reason"}}
	silent := outcome{status: statusFails, server: statusFails}
	iov, other := line{args: []string{"-D", "iov"}}, line{args: []string{"-s", "8"}}
	require.NoError(t, verdict([]result{compared(iov, good, fails), compared(other, good, good), compared(other, fails, fails)}))
	require.ErrorContains(t, verdict([]result{compared(other, good, fails)}), "1 differences that are not listed")
	require.ErrorContains(t, verdict([]result{compared(iov, good, good)}), "-D iov: listed as different in its exit status (`-D iov`), and is the same")
	require.ErrorContains(t, verdict([]result{compared(other, fails, silent)}), "not listed")
	assert.Contains(t, compared(other, fails, silent).faults()[0], "0 lines on stderr")
	assert.Contains(t, compared(other, good, fails).faults()[0], "-s 8: the exit status differs")
}

// The lines have every letter of both releases and every test of the tables.
//
// Source: the getopt strings of UCX 1.13's perftest; the current release's -h.
func TestLinesAreComplete(t *testing.T) {
	words := map[string]bool{"-p": true, "-b": true} // of each line, and of each batch line
	for _, l := range allLines() {
		for _, w := range l.args {
			words[w] = true
		}
	}
	for _, letter := range "tsmnwcOiloBbRp6PhNfvqXdxDWHATMCUrIeEyzVKaLFYgG" {
		assert.True(t, words["-"+string(letter)], "-%c", letter)
	}
	for _, row := range perf.Tests() {
		if row.API != perf.Verbs {
			assert.True(t, words[row.Name], row.Name)
		}
	}
}

// Each known difference is one of a line, and its reason stands in the document.
func TestDifferencesAreOfLines(t *testing.T) {
	text, err := os.ReadFile("../../docs/perftest.md")
	require.NoError(t, err)
	of := map[*difference]int{}
	for _, l := range allLines() {
		for _, k := range []string{kindStatus, kindServer, kindColumns, kindRows, kindBox} {
			of[known(l, k)]++
		}
	}
	for _, d := range differences {
		assert.NotZero(t, of[d], d.title)
		assert.Contains(t, string(text), d.why)
	}
}

// Both tools here are one script: it prints a row, or fails for -x.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "tool")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\ncase \"$*\" in *host*) echo ucx_perftest: note: a >&2; echo reason >&2; exit 1;; esac\necho 20,1,2,3\n"), 0o755))
	doc := filepath.Join(dir, "doc.md")
	require.NoError(t, os.WriteFile(doc, []byte("before\n"+tableBegin+"old\n"+tableEnd+"after\n"), 0o644))
	err := run(context.Background(), []string{"-ours", script, "-ucx", script, "-t", "^-l -v.* -t tag_bw$|tag_lat host"}, os.Stdout, os.Stderr)
	require.NoError(t, err)
	require.NoError(t, store(doc, "new\n"))
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	assert.Equal(t, "before\n"+tableBegin+"new\n\n"+tableEnd+"after\n", string(text))
	require.ErrorContains(t, store(script, "new\n"), "no table")
	require.ErrorContains(t, run(context.Background(), []string{"-t", "no such line"}, os.Stdout, os.Stderr), "matches no line")
	require.ErrorContains(t, run(context.Background(), []string{"-t", "("}, os.Stdout, os.Stderr), "-t: ")
	require.ErrorContains(t, run(context.Background(), []string{"-config", dir + "/none"}, os.Stdout, os.Stderr), "holds no batch line")
}

func TestLinesOf(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"README": "text\n", "sizes": " 8 -s 8\n# no\n\n16 -s 16\n", "types_uct": "put -t put_bw\n", "transports": "one -x rc\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	lines, err := linesOf(dir)
	require.NoError(t, err)
	var titles []string
	for _, l := range lines {
		titles = append(titles, l.title())
	}
	assert.Equal(t, []string{
		"-v -f -n 20 -w 2 -t tag_bw [8 -s 8]", "-v -f -n 20 -w 2 -t tag_bw [16 -s 16]",
		"-v -f -n 20 -w 2 -t am_lat -d mlx5_0:1 [one -x rc]", "-v -f -n 20 -w 2 -x posix -d memory [put -t put_bw]",
	}, titles)
}
