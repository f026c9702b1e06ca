package main

import "github.com/goucx/goucx/internal/cmdline"

// describe returns the option table for shells and the manual.
func describe() cmdline.Command {
	c := cmdline.Command{Name: "ucx_perftest", Summary: "measure latency, bandwidth and message rate between two processes", Operand: "server-hostname"}
	for _, g := range groups {
		described := cmdline.Group{Title: g.title}
		for _, r := range g.carried() {
			o := cmdline.Option{Letter: r.letter, Long: r.long, Arg: r.arg, Optional: r.bare != "", Help: r.help}
			if v, ok := r.value(newOptions()).(value); ok && r.arg != "" {
				o.Words = v.words
			}
			described.Options = append(described.Options, o)
		}
		if len(described.Options) > 0 {
			c.Groups = append(c.Groups, described)
		}
	}
	return c
}
