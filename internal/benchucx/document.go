package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// machine describes the conditions of the measurement.
type machine struct {
	date  string // YYYY-MM-DD
	host  string
	lines string // for display
	load  float64
}

// describe queries scripts/machine and UCX; the working directory is the module's root.
func describe(ctx context.Context, p plan) (machine, error) {
	out, err := exec.CommandContext(ctx, "scripts/machine").Output()
	if err != nil {
		return machine{}, fmt.Errorf("scripts/machine: %w", err)
	}
	m := machine{lines: string(out)}
	for line := range strings.Lines(m.lines) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "date" {
			m.date, _, _ = strings.Cut(f[1], "T")
		}
	}
	if m.date == "" {
		return m, errors.New("scripts/machine prints no date")
	}
	if m.host, err = os.Hostname(); err != nil {
		return m, err
	}
	info := filepath.Join(filepath.Dir(p.ucx), "ucx_info")
	if !strings.ContainsRune(p.ucx, filepath.Separator) {
		info = "ucx_info"
	}
	out, err = exec.CommandContext(ctx, info, "-v").Output()
	if err != nil {
		return m, fmt.Errorf("%s -v: %w", info, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	m.lines += "ucx     " + strings.TrimPrefix(first, "# Version ") + "\n"
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.lines += "load    " + strings.Join(strings.Fields(string(load))[:3], " ") + " at the start\n"
		m.load, _ = strconv.ParseFloat(strings.Fields(string(load))[0], 64) // the kernel's own format
	}
	return m, nil
}

// document is the result with all information needed to read it.
type document struct {
	machine machine
	plan    plan
	results []*result
}

// markdown returns the document as text.
func (d document) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# goucx against UCX, %s, %s\n\n```\n%s```\n\n", d.machine.date, d.machine.host, d.machine.lines)
	fmt.Fprintf(&b, "`%s`\n\n", strings.TrimSpace("make bench-ucx (scripts/bench-ucx "+strings.Join(d.plan.args, " "))+")")
	fmt.Fprintf(&b, "Unless noted otherwise, two processes on cores %d (client) and %d (server). Medians of %d pairs of runs of %v, one of each tool in turn; "+
		"the ratio is the median of the pairs' ratios, with its %s. "+
		"A must holds if the ratio meets it and the worse end of the interval is within %.0f %% of it. "+
		"Before and after each run a hop between the two cores is measured: the cores are near below %.0f ns, else far. "+
		"Pairs are judged in which both runs had the same distance; where there are fewer than %d of them, all are. "+
		"UCX's tool reads the clock for each message; that of goucx does so with `%s`. "+
		"In rows \"against goucx\" the figures under UCX are goucx's without the last option.\n\n",
		d.plan.client, d.plan.server, d.plan.pairs, d.plan.length, d.intervalName(), slack*100, nearLimit, leastComparable, stampEach)
	lines := [][]string{
		{"test", "size", "goucx", "UCX", "", "ratio", "interval", "must", "aim", "", "pairs"},
		slices.Repeat([]string{"---"}, columns),
	}
	for _, r := range d.results {
		lines = append(lines, r.cells())
	}
	writeTable(&b, lines)
	b.WriteString("\n" + d.commands())
	return b.String()
}

// intervalName describes the interval at this number of pairs.
func (d document) intervalName() string {
	c := medianInterval(make([]float64, d.plan.pairs)).covers
	if c < coverage {
		return fmt.Sprintf("whole range (too few pairs for 95 %%: covers %.0f %%)", c*100)
	}
	return fmt.Sprintf("95 %% interval (order statistics, covers %.1f %%)", c*100)
}

// columns is the number of columns of the table.
const columns = 11

// writeTable writes lines of cells with aligned columns, for reading in a terminal.
func writeTable(b *strings.Builder, lines [][]string) {
	var width [columns]int
	for _, l := range lines {
		for i, c := range l {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, l := range lines {
		for i, c := range l {
			fmt.Fprintf(b, "| %-*s ", width[i], c)
		}
		b.WriteString("|\n")
	}
}

// cells returns the row's line in the table.
func (r *result) cells() []string {
	name := r.row.name()
	if more := strings.TrimSpace(r.row.both + " " + r.variant.name()); more != "" {
		name += " `" + more + "`"
	}
	must, aim := r.bound(r.variant.must), r.bound(r.variant.aim)
	if len(r.pairs) == 0 {
		return []string{name, sizeText(r.row.size), "", "", "", "", "", must, aim, "**not measured**", ""}
	}
	ours := r.figures(func(p pair) float64 { return p.ours.figure })
	ucx := r.figures(func(p pair) float64 { return p.ucx.figure })
	mid, i := median(r.ratios()), medianInterval(r.ratios())
	return []string{
		name, sizeText(r.row.size), r.figure(median(ours)), r.figure(median(ucx)), r.unit(),
		fmt.Sprintf("%.3f", mid), fmt.Sprintf("%.3f-%.3f", i.lo, i.hi), must, aim, r.state(mid, i), distances(r.pairs),
	}
}

// state reports whether the row's targets are met.
func (r *result) state(mid float64, i interval) string {
	switch {
	case r.err != nil:
		return fmt.Sprintf("**ended after %d pairs**", len(r.pairs))
	case r.variant.must == 0:
		return ""
	case !r.variant.holds(r.row.metric, mid, i):
		return "**fails**"
	case r.variant.reaches(r.row.metric, mid):
		return "holds, aim reached"
	default:
		return "holds"
	}
}

// bulk is the size from which a rate is shown in bytes.
const bulk = 4 << 10

// unit returns the unit of the figures.
func (r *result) unit() string {
	switch {
	case r.row.metric == latency:
		return "us"
	case r.row.size >= bulk:
		return "GB/s"
	default:
		return "M/s"
	}
}

func (r *result) figure(x float64) string {
	switch r.unit() {
	case "GB/s":
		x *= float64(r.row.size) / 1e9
	case "M/s":
		x /= 1e6
	}
	return fmt.Sprintf("%.4g", x)
}

func (r *result) bound(x float64) string {
	switch {
	case x == 0:
		return ""
	case r.row.metric == latency:
		return fmt.Sprintf("≤ %g", x)
	default:
		return fmt.Sprintf("≥ %g", x)
	}
}

// commands lists the command lines of the rows.
func (d document) commands() string {
	var b strings.Builder
	b.WriteString("Commands, with a free PORT, and N iterations to fill the time:\n\n```\n")
	rows := d.plan.choose(allRows)
	var shown []string
	for _, r := range rows {
		for _, t := range []tool{d.plan.goucx(r, variant{}), d.plan.cucx(r)} {
			if lines := d.lines(t); !slices.Contains(shown, lines) {
				shown = append(shown, lines)
				b.WriteString(lines)
			}
		}
	}
	for _, r := range rows {
		if len(r.ours)+len(r.ucx) > 0 {
			fmt.Fprintf(&b, "%s: goucx %s; UCX %s\n", r.title(), strings.Join(r.ours, " "), strings.Join(r.ucx, " "))
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// lines returns the command lines of one run.
func (d document) lines(t tool) string {
	const test = " -f -v -t TEST -s SIZE -n N\n"
	command := strings.Join(append(slices.Clone(t.env), t.binary), " ")
	if t.form != twoProcesses {
		return command + " " + strings.Join(d.plan.placeArgs(t.form), " ") + test
	}
	return fmt.Sprintf("%[1]s -c %[2]d -p PORT\n%[1]s -c %[3]d -p PORT %[4]s%[5]s", command, d.plan.server, d.plan.client, host, test)
}

// csv returns every pair.
func (d document) csv() []byte {
	var b bytes.Buffer
	b.WriteString("test,against,size,option,pair,unit,goucx,ucx,ratio,goucx_hop_before_ns,goucx_hop_after_ns,ucx_hop_before_ns,ucx_hop_after_ns\n")
	for _, r := range d.results {
		unit := [...]string{latency: "us", rate: "messages/s"}[r.row.metric]
		option := strings.TrimSpace(r.row.both + " " + r.variant.name())
		against := r.row.against
		if r.row.ownBase {
			against = "goucx"
		}
		for i, p := range r.pairs {
			fmt.Fprintf(&b, "%s,%s,%d,%s,%d,%s,%g,%g,%.4f,%.0f,%.0f,%.0f,%.0f\n", r.row.test, against, r.row.size, option, i+1, unit,
				p.ours.figure, p.ucx.figure, p.ratio(), p.ours.before, p.ours.after, p.ucx.before, p.ucx.after)
		}
	}
	return b.Bytes()
}

// store writes DATE-HOST-ucx.md and .csv, with a number if the name exists: stored figures are
// never overwritten.
func (d document) store(log io.Writer) error {
	if err := os.MkdirAll(d.plan.dir, 0o755); err != nil {
		return err
	}
	base := filepath.Join(d.plan.dir, d.machine.date+"-"+d.machine.host+"-ucx")
	name := base
	for n := 2; exists(name + ".md"); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	link := fmt.Sprintf("\nAll pairs: [%s.csv](%s.csv)\n", filepath.Base(name), filepath.Base(name))
	err := errors.Join(
		os.WriteFile(name+".csv", d.csv(), 0o644),
		os.WriteFile(name+".md", []byte(d.markdown()+link), 0o644),
	)
	if err == nil {
		fmt.Fprintf(log, "stored %s.md and .csv\n", name)
	}
	return err
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func sizeText(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KB", n>>10)
	default:
		return fmt.Sprintf("%d B", n)
	}
}
