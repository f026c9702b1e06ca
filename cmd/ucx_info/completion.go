package main

import (
	"strings"

	"github.com/goucx/goucx/internal/cmdline"
)

// describe returns the option table for shells and the manual.
func describe() cmdline.Command {
	c := cmdline.Command{Name: "ucx_info", Summary: "show what goucx is and what it would use here"}
	for _, g := range table(&options{}) {
		described := cmdline.Group{Title: strings.TrimSuffix(g.title, ":")}
		for _, r := range g.rows {
			o := cmdline.Option{Letter: r.letter, Long: r.name, Optional: r.noArg != "", Help: strings.Split(r.help, "\n")}
			if r.arg != "" {
				o.Arg = "<" + r.arg + ">"
			}
			if r.name == "completion" {
				o.Words = strings.Fields(cmdline.Shells)
			}
			described.Options = append(described.Options, o)
		}
		c.Groups = append(c.Groups, described)
	}
	return c
}
