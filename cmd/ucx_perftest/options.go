package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/perf/report"
	"github.com/goucx/goucx/perf/rte"
)

// options is a parsed command line. Params is sent to the other side; all other fields apply to
// this process.
type options struct {
	perf.Params
	host       string
	port       int
	ipv6       bool
	wait       time.Duration
	interval   time.Duration
	gcInterval time.Duration // 0: the runtime decides when it collects garbage
	cpus       []int
	loopback   bool
	batch      []string
	pcap       string
	style      report.Style
	plot       string // the file of --plot
	calibrate  string // the transport of --calibrate
	quiet      bool
	help       bool
	version    bool
	man        bool
	completion string
	given      []string // letters or long names of the test options that were set
	onlyTests  bool     // a line of a batch file: test options only
	refused    error    // the first option or value that goucx does not support
}

func newOptions() *options {
	return &options{Params: perf.Defaults(), port: rte.DefaultPort, wait: 5 * time.Second, interval: time.Second}
}

// option is a row of the option table, for parsing and for -h.
type option struct {
	letter, long string
	arg          string // "<size>"; "" for a switch
	bare         string // the value if an optional argument is omitted
	help         []string
	// test: the option describes the test. It may stand in a batch file and must be equal on both
	// sides.
	test bool
	// line: the option may stand in a line of a batch file too, without an effect on the other side.
	line bool
	// refused is the reason why goucx does not support an option of UCX; "": it does.
	refused string
	value   func(o *options) pflag.Value
}

// group is a heading of -h with its options.
type group struct {
	title string
	rows  []option
}

// name returns the option's name in messages.
func (r *option) name() string {
	if r.letter != "" {
		return "-" + r.letter
	}
	return "--" + r.long
}

// flags returns a parser for o from the table.
func (o *options) flags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("ucx_perftest", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	for _, g := range groups {
		for i := range g.rows {
			r := &g.rows[i]
			f := fs.VarPF(refusing{r.parser(o), r, o}, r.long, r.letter, "")
			if f.NoOptDefVal = r.bare; r.arg == "" {
				f.NoOptDefVal = "true"
			}
		}
	}
	return fs
}

// refusing is a value that records in refused what goucx does not support. The rest of the line is
// parsed all the same, because it has the server's host, to which decline reports the error.
type refusing struct {
	pflag.Value
	row *option
	o   *options
}

func (v refusing) Set(s string) error {
	err := v.Value.Set(s)
	if errors.Is(err, errors.ErrUnsupported) {
		v.o.refused = cmp.Or(v.o.refused, fmt.Errorf("%s %q: %w", v.row.name(), s, err))
		return nil
	}
	return err
}

func (r *option) parser(o *options) pflag.Value {
	switch {
	case r.refused != "":
		return errorValue(unsupported(r.refused))
	case o.onlyTests && !r.test && !r.line:
		return errorValue(errors.New("belongs on the command line, not in a batch file"))
	}
	return r.value(o)
}

// parse parses a command line, or the options of a line of a batch file.
func (o *options) parse(args []string) error {
	fs := o.flags()
	if err := fs.Parse(o.joinErrorMode(args)); err != nil {
		return nameOption(err)
	}
	for _, g := range groups {
		for i := range g.rows {
			r := &g.rows[i]
			if f := fs.Lookup(r.long); f != nil && f.Changed && r.test {
				o.given = append(o.given, r.long)
			}
		}
	}
	return cmp.Or(o.positional(fs.Args()), o.refused)
}

// errorModes are the words that -e takes for its value. UCX 1.13's -e has none: any other word after
// it is the server's host name.
const errorModes = "none peer failover"

// bareError matches -e, also behind other switches, with a mode or without.
var bareError = regexp.MustCompile(`^(-[BCIUlozyNfvqV6]*e)(none|peer|failover|)$`)

// joinErrorMode returns args with each -e and its mode in one word, as pflag reads an optional value.
// In a line of a batch file any word is one: a host name cannot stand there.
func (o *options) joinErrorMode(args []string) []string {
	var joined []string
	for i := 0; i < len(args); i++ {
		m := bareError.FindStringSubmatch(args[i])
		switch {
		case args[i] == "--":
			return append(joined, args[i:]...)
		case m == nil:
			joined = append(joined, args[i])
		case m[2] != "":
			joined = append(joined, m[1]+"="+m[2])
		case i+1 < len(args) && (contains(strings.Fields(errorModes), args[i+1]) || o.onlyTests && !strings.HasPrefix(args[i+1], "-")):
			joined = append(joined, m[1]+"="+args[i+1])
			i++
		default:
			joined = append(joined, args[i])
		}
	}
	return joined
}

// nameOption returns err with the option's own name and value in front of its reason, or with the
// nearest name of an unknown one.
func nameOption(err error) error {
	if u, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		for _, g := range groups {
			for _, r := range g.rows {
				names = append(names, r.long)
			}
		}
		if n := config.Nearest(u.GetSpecifiedName(), names); n != "" && u.GetSpecifiedShortnames() == "" {
			return fmt.Errorf("%w; did you mean --%s?", err, n)
		}
		return err
	}
	e, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	f := e.GetFlag()
	r := option{letter: f.Shorthand, long: f.Name}
	if f.NoOptDefVal == e.GetValue() {
		return fmt.Errorf("%s: %w", r.name(), e.Unwrap())
	}
	return fmt.Errorf("%s %q: %w", r.name(), e.GetValue(), e.Unwrap())
}

// positional parses the server's host name.
func (o *options) positional(args []string) error {
	switch {
	case len(args) == 0:
	case o.onlyTests:
		return fmt.Errorf("unexpected %q", args[0])
	case len(args) > 1:
		return fmt.Errorf("unexpected %q after the server's host name %q", args[1], args[0])
	case args[0] == "":
		return errors.New("the server's host name is empty; without one this side is the server")
	case o.loopback && !o.help:
		return fmt.Errorf("a server's host name, %q, is not allowed with -l", args[0])
	default:
		o.host = args[0]
	}
	return nil
}

// checkForm returns an error for output forms that exclude each other. -v and -N may be combined,
// as in UCX.
func (o *options) checkForm() error {
	s := &o.style
	for _, pair := range []struct {
		both       bool
		form, what string
	}{
		{s.JSON && s.CSV, "--json", "-v"},
		{s.JSON && s.Numeric, "--json", "-N"},
		{s.CSV && s.Percentiles, "-v", "--percentiles"},
	} {
		if pair.both {
			return usagef("%s and %s do not go together: %s has a form of its own", pair.form, pair.what, pair.form)
		}
	}
	return nil
}

// ignored lists the given options that test t does not use, in UCX's terms. An option that was
// given its default is omitted.
func (o *options) ignored(t perf.Test) []string {
	defaults := newOptions()
	zero := &options{}
	unused := func(r *option, t perf.Test) bool {
		used := &options{Params: o.Effective(t)}
		value := r.value(used).String()
		return value == r.value(zero).String() && value != r.value(o).String()
	}
	var list []string
	for _, g := range groups {
		for i := range g.rows {
			r := &g.rows[i]
			if r.refused != "" || !contains(o.given, r.long) {
				continue
			}
			value := r.value(o).String()
			if value == r.value(defaults).String() || !unused(r, t) {
				continue
			}
			what := r.name()
			if r.arg != "" {
				what += " '" + strings.Trim(value, `"`) + "'"
			}
			by := "for " + t.API.String() + " test"
			if slices.ContainsFunc(perf.Tests(), func(other perf.Test) bool { return other.API == t.API && !unused(r, other) }) {
				by = "by " + t.Name // others of the API use it
			}
			text := fmt.Sprintf("%s ignored %s", what, by)
			if t.API == perf.UCP && (r.letter == "x" || r.letter == "d") {
				text += "; see NOTE in help message"
			}
			list = append(list, text)
		}
	}
	return list
}

// differences lists the options that were given in o and have another value in p: one side
// requires them and the other does not use them.
func (o *options) differences(p perf.Params) []string {
	other := newOptions()
	other.Params = p
	var diffs []string
	for _, g := range groups {
		for i := range g.rows {
			r := &g.rows[i]
			if !r.test || r.refused != "" || !contains(o.given, r.long) {
				continue
			}
			if own, peerValue := r.value(o).String(), r.value(other).String(); own != peerValue {
				diffs = append(diffs, fmt.Sprintf("%s is %s here and %s there", r.name(), own, peerValue))
			}
		}
	}
	return diffs
}
