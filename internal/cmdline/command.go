package cmdline

import (
	"fmt"
	"strings"
)

// Command is a command as its option table describes it.
type Command struct {
	Name, Summary string
	// Operand is what may follow the options, "server-hostname"; "": nothing.
	Operand string
	Groups  []Group
}

// Group is a heading with its options.
type Group struct {
	Title   string
	Options []Option
}

// Option is an option as a shell and a manual know it.
type Option struct {
	Letter, Long string   // without dashes; "": none
	Arg          string   // "<size>"; "": a switch
	Optional     bool     // the argument may be left out
	Words        []string // values; nil: others
	Help         []string // lines
}

// files reports whether the argument is a file.
func (o Option) files() bool { return o.Arg == "<file>" }

// names returns "-t", "--test".
func (o Option) names() (names []string) {
	if o.Letter != "" {
		names = append(names, "-"+o.Letter)
	}
	if o.Long != "" {
		names = append(names, "--"+o.Long)
	}
	return names
}

// Shells are those that Completion supports.
const Shells = "bash zsh fish"

// Completion returns the completion script of one of Shells, or "".
func (c Command) Completion(shell string) string {
	switch shell {
	case "bash":
		return c.bash()
	case "zsh":
		return c.zsh()
	case "fish":
		return c.fish()
	}
	return ""
}

func (c Command) each(f func(o Option)) {
	for _, g := range c.Groups {
		for _, o := range g.Options {
			f(o)
		}
	}
}

func (c Command) bash() string {
	var b strings.Builder
	var all []string
	fmt.Fprintf(&b, "# bash completion of %s\n_%s() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n\tCOMPREPLY=()\n\tcase $prev in\n", c.Name, c.Name)
	c.each(func(o Option) {
		all = append(all, o.names()...)
		switch {
		case o.Arg == "" || o.Optional && o.Words == nil:
		case o.Words != nil:
			fmt.Fprintf(&b, "\t%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", strings.Join(o.names(), "|"), strings.Join(o.Words, " "))
		case o.files():
			fmt.Fprintf(&b, "\t%s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", strings.Join(o.names(), "|"))
		default:
			fmt.Fprintf(&b, "\t%s) return ;;\n", strings.Join(o.names(), "|"))
		}
	})
	fmt.Fprintf(&b, "\tesac\n\tif [[ $cur == -* ]]; then\n\t\tCOMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n", strings.Join(all, " "))
	if c.Operand != "" {
		b.WriteString("\telse\n\t\tCOMPREPLY=($(compgen -A hostname -- \"$cur\"))\n")
	}
	fmt.Fprintf(&b, "\tfi\n}\ncomplete -F _%s %s\n", c.Name, c.Name)
	return b.String()
}

func (c Command) zsh() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %s\n_arguments -s -S", c.Name)
	escape := strings.NewReplacer("'", "'\\''", "[", "\\[", "]", "\\]", ":", "\\:").Replace
	c.each(func(o Option) {
		value := ""
		if o.Arg != "" {
			sep := ":"
			if o.Optional {
				sep = "::"
			}
			value = sep + escape(strings.Trim(o.Arg, "<>")) + ":"
			switch {
			case o.Words != nil:
				value += "(" + strings.Join(o.Words, " ") + ")"
			case o.files():
				value += "_files"
			}
		}
		for _, n := range o.names() {
			if o.Arg != "" && strings.HasPrefix(n, "--") {
				n += "="
			}
			fmt.Fprintf(&b, " \\\n\t'*%s[%s]%s'", n, escape(o.Help[0]), value)
		}
	})
	if c.Operand != "" {
		fmt.Fprintf(&b, " \\\n\t':%s:_hosts'", c.Operand)
	}
	b.WriteString("\n")
	return b.String()
}

func (c Command) fish() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion of %s\n", c.Name)
	if c.Operand != "" {
		fmt.Fprintf(&b, "complete -c %s -f -a '(__fish_print_hostnames)'\n", c.Name)
	}
	quote := strings.NewReplacer("\\", "\\\\", "'", "\\'").Replace
	c.each(func(o Option) {
		fmt.Fprintf(&b, "complete -c %s", c.Name)
		if o.Letter != "" {
			b.WriteString(" -s " + o.Letter)
		}
		if o.Long != "" {
			b.WriteString(" -l " + o.Long)
		}
		switch {
		case o.Words != nil:
			fmt.Fprintf(&b, " -x -a '%s'", strings.Join(o.Words, " "))
		case o.files():
			b.WriteString(" -r -F")
		case o.Arg != "" && !o.Optional:
			b.WriteString(" -x")
		}
		fmt.Fprintf(&b, " -d '%s'\n", quote(o.Help[0]))
	})
	return b.String()
}

// Man returns the manual page of section 1.
func (c Command) Man() string {
	text := func(s string) string {
		s = strings.NewReplacer("\\", "\\e", "-", "\\-").Replace(s)
		if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
			s = "\\&" + s
		}
		return s
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n", strings.ToUpper(c.Name), text(c.Name), text(c.Summary), text(c.Name))
	if c.Operand != "" {
		fmt.Fprintf(&b, "[%s]\n", text(c.Operand))
	}
	b.WriteString("[options]\n.SH OPTIONS\n")
	for _, g := range c.Groups {
		fmt.Fprintf(&b, ".SS %s\n", text(g.Title))
		for _, o := range g.Options {
			head := text(strings.Join(o.names(), ", "))
			if o.Arg != "" {
				head += " " + text(o.Arg)
			}
			fmt.Fprintf(&b, ".TP\n.B %s\n", head)
			for i, l := range o.Help {
				if i > 0 {
					b.WriteString(".br\n")
				}
				b.WriteString(text(l) + "\n")
			}
			if len(o.Words) > 8 {
				fmt.Fprintf(&b, ".br\n%s\n", text(strings.Join(o.Words, " ")))
			}
		}
	}
	b.WriteString(".SH EXIT STATUS\n0 if everything succeeded, 1 if something failed, 2 for an invalid command line.\n")
	return b.String()
}
