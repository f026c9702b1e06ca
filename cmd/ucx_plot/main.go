package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/goucx/goucx/internal/cmdline"
	"github.com/goucx/goucx/perf/report"
)

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout)
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "ucx_plot: %v\n", err)
	if _, ok := errors.AsType[usageError](err); ok {
		os.Exit(2)
	}
	os.Exit(1)
}

// usageError is an invalid command line; the exit code is 2.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

const usage = `Usage: ucx_plot [options] [file...]

Draws results of ucx_perftest --json as SVG. Without a file, and for "-", it reads stdin.
Each test, transport and set of options is a line; several files have lines of their own.

`

// run is the command. It writes the output file only when the whole picture is drawn.
func run(args []string, stdin io.Reader, stdout io.Writer) error {
	fs := pflag.NewFlagSet("ucx_plot", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	output := fs.StringP("output", "o", "-", "the SVG `file`, - is stdout")
	names := fs.StringSliceP("chart", "c", nil, "charts to draw, of "+strings.Join(chartNames(), ", ")+"\n(latency and percentiles for tests of latency, bandwidth for streams)")
	title := fs.StringP("title", "t", "", "`text` above the charts")
	help := fs.BoolP("help", "h", false, "show this help message")
	showVersion := fs.Bool("version", false, "print the version")
	if err := fs.Parse(args); err != nil {
		return usagef("%w (-h lists the options)", err)
	}
	if *help {
		_, err := io.WriteString(stdout, usage+fs.FlagUsages())
		return err
	}
	if *showVersion {
		v := cmdline.BuildOf(cmdline.Info())
		_, err := fmt.Fprintf(stdout, "ucx_plot of goucx %s, revision %s, %s %s\n", v.Version, v.ShortRevision(), v.Go, v.Platform)
		return err
	}
	if *output != "-" && filepath.Ext(*output) != ".svg" {
		return usagef("-o %s: ucx_plot writes SVG; choose a name that ends in .svg", *output)
	}
	charts, err := chooseCharts(*names)
	if err != nil {
		return err
	}
	files := fs.Args()
	if len(files) == 0 {
		files = []string{"-"}
	}
	var results []result
	for _, name := range files {
		rows, err := readFile(name, stdin)
		if err != nil {
			return fmt.Errorf("%s: %w", inputName(name), err)
		}
		for _, row := range rows {
			if row.Result == nil || row.Thread != nil {
				continue // a row of a second, or of one thread
			}
			r := result{JSONRow: row}
			if len(files) > 1 {
				r.file = inputName(name)
			}
			results = append(results, r)
		}
	}
	if len(results) == 0 {
		return errors.New("the input has no final result of ucx_perftest --json")
	}
	lines, err := group(results)
	if err != nil {
		return err
	}
	var picture bytes.Buffer
	if err := draw(&picture, *title, lines, charts); err != nil {
		return err
	}
	if *output == "-" {
		_, err = picture.WriteTo(stdout)
		return err
	}
	return os.WriteFile(*output, picture.Bytes(), 0o644)
}

func readFile(name string, stdin io.Reader) ([]report.JSONRow, error) {
	if name == "-" {
		return report.ReadJSON(stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return report.ReadJSON(f)
}

// inputName returns an input's name in messages and labels.
func inputName(name string) string {
	if name == "-" {
		return "stdin"
	}
	return name
}
