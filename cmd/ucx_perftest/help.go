package main

import (
	"bufio"
	"fmt"
	"io"

	"github.com/goucx/goucx/perf"
)

// writeUsage prints -h from the same tables that the program uses: options, and tests in UCX's
// order.
func writeUsage(w io.Writer, _ *options) error {
	b := bufio.NewWriter(w)
	fmt.Fprint(b, "  Usage: ucx_perftest [ server-hostname ] [ options ]\n")
	for _, g := range groups {
		if rows := g.carried(); len(rows) > 0 {
			fmt.Fprintf(b, "\n  %s:\n", g.title)
			for _, r := range rows {
				writeOption(b, r)
			}
		}
	}
	fmt.Fprint(b, `
   NOTE: When running UCP tests, transport and device should be specified by
         environment variables: UCX_TLS and UCX_[SELF|SHM|NET]_DEVICES.
   NOTE: Verbs tests are goucx's own. They run over a device of the software
         RNIC (ucx_info -d): by default over the one whose address the two
         sides have found each other by, with -l over the in-process one.
         UCX_SOFT_* set it up.

  Options of UCX's tool that are not supported:`)
	for _, g := range groups {
		for _, r := range g.rows {
			if r.refused != "" {
				fmt.Fprintf(b, " %s", r.name())
			}
		}
	}
	fmt.Fprint(b, "\n")
	return b.Flush()
}

func (g *group) carried() []option {
	var rows []option
	for _, r := range g.rows {
		if r.refused == "" {
			rows = append(rows, r)
		}
	}
	return rows
}

// helpColumn is the column at which UCX's tool begins its explanations.
const helpColumn = 20

func writeOption(b *bufio.Writer, r option) {
	head := r.name()
	if r.letter != "" && r.arg == "" {
		head = "-" + r.letter
	}
	if r.arg != "" {
		head += " " + r.arg
	}
	head = "     " + head
	lines := r.help
	if len(head) >= helpColumn {
		fmt.Fprintln(b, head)
		head = ""
	}
	for _, l := range lines {
		fmt.Fprintf(b, "%-*s%s\n", helpColumn, head, l)
		head = ""
	}
	if r.letter == "t" {
		writeTests(b)
	}
}

func writeTests(b *bufio.Writer) {
	for _, t := range perf.Tests() {
		note := ""
		switch {
		case t.Later:
			note = " (not supported yet)"
		case t.API == perf.Verbs:
			note = " (goucx's own)"
		}
		fmt.Fprintf(b, "%17s - %s %s%s\n", t.Name, t.API, t.Desc, note)
	}
	fmt.Fprintln(b)
}
