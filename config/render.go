package config

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteConf writes s as ucx.conf text, one UCX_NAME=value per line. With full, each line follows a
// comment with its help, allowed values, default and origin. [Load] reads the same values back,
// except for a text with a space before a semicolon, which begins a comment.
func (s *Set) WriteConf(w io.Writer, full bool) error {
	b := bufio.NewWriter(w)
	section := ""
	for v := range s.All() {
		if full && v.Section != section {
			section = v.Section
			fmt.Fprintf(b, "#\n# %s settings\n#\n\n", section)
		}
		if full {
			writeComment(b, v)
		}
		fmt.Fprintf(b, "%s%s=%s\n", Prefix, v.Name, v.Text)
		if full {
			fmt.Fprintln(b)
		}
	}
	return b.Flush() // a bufio.Writer keeps its first error
}

func writeComment(b *bufio.Writer, v Value) {
	for line := range strings.Lines(v.Help) {
		fmt.Fprintf(b, "# %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(b, "#\n# syntax:    %s\n# default:   %s\n", v.Allowed, withUnit(v.Default, v.Unit))
	if len(v.Fallbacks) > 0 {
		fmt.Fprintf(b, "# inherits:  %s\n", strings.Join(prefixed(v.Fallbacks), ", "))
	}
	if len(v.Aliases) > 0 {
		fmt.Fprintf(b, "# aliases:   %s\n", strings.Join(prefixed(v.Aliases), ", "))
	}
	if v.Origin.Kind != Default {
		fmt.Fprintf(b, "# origin:    %s\n", v.Origin)
	}
	fmt.Fprintln(b, "#")
}

// Markdown writes a reference of all rows: a heading and a table per section, this package's own
// first.
func Markdown(w io.Writer, tables ...Table) error {
	s, err := newSet(append([]Table{ownTable()}, tables...))
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	section := ""
	for _, r := range s.rows {
		if r.section != section {
			if section != "" {
				fmt.Fprintln(b)
			}
			section = r.section
			fmt.Fprintf(b, "## %s\n\n| variable | default | allowed | meaning |\n|---|---|---|---|\n", cell(section))
		}
		help := r.Help()
		if wider := r.Fallbacks(); len(wider) > 0 {
			help += " Inherits " + strings.Join(prefixed(wider), ", ") + "."
		}
		if names := r.Aliases(); len(names) > 0 {
			help += " UCX's names: " + strings.Join(prefixed(names), ", ") + "."
		}
		def := "(empty)"
		if text := withUnit(r.Default(), r.Unit()); text != "" {
			def = "`" + cell(text) + "`"
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s |\n", Prefix, r.Name(), def, cell(r.Allowed()), cell(help))
	}
	return b.Flush()
}

// MarkdownUCX writes a table of all variables of UCX 1.13: its default, and whether goucx uses it,
// reads it as another name of one of its own rows, or has no use for it and why.
func MarkdownUCX(w io.Writer, tables ...Table) error {
	s, err := newSet(append([]Table{ownTable()}, tables...))
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	fmt.Fprint(b, "| variable of UCX | UCX's default | goucx | why |\n|---|---|---|---|\n")
	for _, v := range ucxVariables() {
		use, why := s.useOf(v.name)
		def := "(empty)"
		if v.def != "" {
			def = "`" + cell(v.def) + "`"
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s |\n", Prefix, v.name, def, use, cell(why))
	}
	return b.Flush()
}

// useOf returns the last two cells of a variable of UCX.
func (s *Set) useOf(name string) (use, why string) {
	for _, r := range s.rows {
		if r.Name() == name {
			return "used", "the default is " + strings.TrimSpace(cmp.Or(withUnit(r.Default(), r.Unit()), "empty"))
		}
		if slices.Contains(r.Aliases(), name) || slices.Contains(r.Fallbacks(), name) {
			return "alias", "same as " + Prefix + r.Name()
		}
	}
	return "no meaning", reasonUnused(name)
}

// withUnit appends the unit if the default ends in a digit.
func withUnit(def, unit string) string {
	if unit == "" || def == "" || def[len(def)-1] < '0' || def[len(def)-1] > '9' {
		return def
	}
	return def + " " + unit
}

func prefixed(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = Prefix + n
	}
	return out
}

// cell converts text for one cell of a Markdown table.
func cell(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "|", `\|`)), " ")
}
