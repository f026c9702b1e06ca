package main

import (
	"fmt"
	"io"
	"strings"
)

// helpColumn is the column at which the help text begins.
const helpColumn = 18

// usage prints the table of options.
func usage(w io.Writer) error {
	var b strings.Builder
	b.WriteString("Usage: ucx_info [options]\n")
	for i, g := range table(&options{}) {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(g.title + "\n")
		for _, r := range g.rows {
			r.usage(&b)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r option) usage(b *strings.Builder) {
	head := "      "
	if r.letter != "" {
		head = "  -" + r.letter
	}
	if r.letter == "" {
		head += "--" + r.name
	}
	if r.arg != "" {
		head += " <" + r.arg + ">"
	}
	sep := ""
	if len(head) >= helpColumn {
		b.WriteString(head + "\n")
		head = ""
	}
	for line := range strings.Lines(r.help) {
		fmt.Fprintf(b, "%s%-*s%s", sep, helpColumn, head, line)
		head, sep = "", ""
	}
	b.WriteString("\n")
}
