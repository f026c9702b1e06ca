package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Marks around the table in the document.
const (
	tableBegin = "<!-- table of scripts/compare-ucx -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

// table returns the results as Markdown: the groups, then the differences with their reasons.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("\n| lines | compared | same | different for a reason |\n|---|---|---|---|\n")
	var groups []string
	total, same := map[string]int{}, map[string]int{}
	for _, r := range results {
		if total[r.group]++; total[r.group] == 1 {
			groups = append(groups, r.group)
		}
		if len(r.kinds) == 0 {
			same[r.group]++
		}
	}
	for _, g := range groups {
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", g, total[g], same[g], total[g]-same[g])
	}
	b.WriteString("\n| lines that differ | number | in | UCX 1.13 | goucx | why |\n|---|---|---|---|---|---|\n")
	for _, d := range differences {
		n := 0
		var first result
		for _, r := range results {
			if k := d.kinds[0]; slices.Contains(r.kinds, k) && r.why[k] == d {
				if n++; n == 1 {
					first = r
				}
			}
		}
		if n > 0 {
			fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s |\n", d.title, n, strings.Join(d.kinds, ", "), first.ucx.cell(d.kinds[0]), first.ours.cell(d.kinds[0]), d.why)
		}
	}
	return b.String()
}

// cell returns the part of an outcome that a kind is about, in the words of the table.
func (o outcome) cell(kind string) string {
	switch kind {
	case kindStatus:
		return o.status
	case kindServer:
		return o.server
	case kindRows:
		return fmt.Sprintf("%d printed", len(o.rows))
	}
	return ""
}

// verdict returns an error for each fault, and for each known difference whose lines agree.
func verdict(results []result) error {
	var errs []error
	faults := 0
	for _, r := range results {
		faults += len(r.faults())
		for _, d := range differences {
			for _, k := range d.kinds {
				if d == known(r.line, k) && !slices.Contains(r.kinds, k) {
					errs = append(errs, fmt.Errorf("%s: listed as different in its %s (%s), and is the same", r.title(), k, d.title))
				}
			}
		}
	}
	if faults > 0 {
		errs = append(errs, fmt.Errorf("%d differences that are not listed", faults))
	}
	return errors.Join(errs...)
}

// store replaces the table in a document.
func store(path, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), tableBegin)
	_, after, closed := strings.Cut(rest, tableEnd)
	if !ok || !closed {
		return fmt.Errorf("%s: no table between %q and %q", path, strings.TrimSpace(tableBegin), strings.TrimSpace(tableEnd))
	}
	return os.WriteFile(path, []byte(before+tableBegin+text+"\n"+tableEnd+after), 0o644)
}
