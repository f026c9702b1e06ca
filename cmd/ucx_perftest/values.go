package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/ucs/cpu"
)

// The values of options. String returns the spelling that is compared between the sides and shown
// if they differ.

var errLater = perf.ErrNotSupportedYet

// numberError returns strconv's reason without its function names.
func numberError(err error) error {
	if n, ok := errors.AsType[*strconv.NumError](err); ok {
		return n.Err
	}
	return err
}

// laterValue is an option that UCX supports and goucx does not yet.
type laterValue struct{}

func (laterValue) String() string   { return "" }
func (laterValue) Set(string) error { return errLater }
func (laterValue) Type() string     { return "" }

// onlyValue is an option with one supported value. Others, separated by blanks, are known and not
// supported yet. pair allows "a,b".
type onlyValue struct {
	only, unsupported string
	pair              bool
}

func (v onlyValue) String() string { return v.only }
func (v onlyValue) Type() string   { return "" }

func (v onlyValue) Set(s string) error {
	parts := []string{s}
	if v.pair {
		parts = strings.SplitN(s, ",", 2)
	}
	for _, p := range parts {
		switch {
		case p == v.only:
		case contains(strings.Fields(v.unsupported), p) || v.unsupported == "":
			return fmt.Errorf("%w; supported is %s", errLater, v.only)
		default:
			return fmt.Errorf("known are %s %s", v.only, v.unsupported)
		}
	}
	return nil
}

func contains(list []string, s string) bool { return slices.Contains(list, s) }

type boolValue struct{ p *bool }

func (v boolValue) String() string { return strconv.FormatBool(*v.p) }
func (v boolValue) Type() string   { return "" }

func (v boolValue) Set(s string) (err error) {
	*v.p, err = strconv.ParseBool(s)
	return numberError(err)
}

type stringValue struct{ p *string }

func (v stringValue) String() string     { return strconv.Quote(*v.p) }
func (v stringValue) Type() string       { return "" }
func (v stringValue) Set(s string) error { *v.p = s; return nil }

// testValue is the name of a test in the table.
type testValue struct{ p *string }

func (v testValue) String() string { return *v.p }
func (v testValue) Type() string   { return "" }

func (v testValue) Set(s string) error {
	_, err := perf.Lookup(s)
	*v.p = s
	return err
}

// headerValue is the length of an active message's header. A negative value is the test's default,
// which the command line cannot specify.
type headerValue struct{ p *int64 }

func (v headerValue) String() string { return strconv.FormatInt(*v.p, 10) }
func (v headerValue) Type() string   { return "" }

func (v headerValue) Set(s string) (err error) {
	if *v.p, err = strconv.ParseInt(s, 10, 64); err == nil && *v.p < 0 {
		err = errors.New("a length is at least 0")
	}
	return numberError(err)
}

// waitModeValue selects whether waits block.
type waitModeValue struct{ p *bool }

func (v waitModeValue) Type() string { return "" }

func (v waitModeValue) String() string {
	if *v.p {
		return "sleep"
	}
	return "poll"
}

func (v waitModeValue) Set(s string) error {
	if s != "poll" && s != "sleep" {
		return errors.New("known are poll sleep")
	}
	*v.p = s == "sleep"
	return nil
}

type choiceValue struct {
	p    *string
	from string
}

func (v choiceValue) String() string { return *v.p }
func (v choiceValue) Type() string   { return "" }

func (v choiceValue) Set(s string) error {
	if !contains(strings.Fields(v.from), s) {
		return fmt.Errorf("known are %s", v.from)
	}
	*v.p = s
	return nil
}

// layoutValue parses UCX's names for both APIs; contig is the default.
type layoutValue struct{ p *perf.Layout }

func (v layoutValue) String() string { return string(*v.p) }
func (v layoutValue) Type() string   { return "" }

func (v layoutValue) Set(s string) error {
	switch l := perf.Layout(s); l {
	case perf.Short, perf.Bcopy, perf.Zcopy:
		*v.p = l
		return nil
	case "contig", "contig,contig":
		return nil
	case "shortiov", "iov", "iov,iov", "iov,contig", "contig,iov":
		return errLater
	default:
		return errors.New("known are short bcopy zcopy contig")
	}
}

// int64Value and intValue leave range checks to perf.
type int64Value struct{ p *int64 }

func (v int64Value) String() string { return strconv.FormatInt(*v.p, 10) }
func (v int64Value) Type() string   { return "" }

func (v int64Value) Set(s string) (err error) {
	*v.p, err = strconv.ParseInt(s, 10, 64)
	return numberError(err)
}

type intValue struct{ p *int }

func (v intValue) String() string { return strconv.Itoa(*v.p) }
func (v intValue) Type() string   { return "" }

func (v intValue) Set(s string) (err error) {
	*v.p, err = strconv.Atoi(s)
	return numberError(err)
}

// threadsValue rejects 0, which perf treats as unset.
type threadsValue struct{ p *int }

func (v threadsValue) String() string { return strconv.Itoa(*v.p) }
func (v threadsValue) Type() string   { return "" }

func (v threadsValue) Set(s string) error {
	if err := intValue(v).Set(s); err != nil {
		return err
	}
	if *v.p == 0 {
		return errors.New("number of threads 0 is out of range: at least 1")
	}
	return nil
}

type portValue struct{ p *int }

func (v portValue) String() string { return strconv.Itoa(*v.p) }
func (v portValue) Type() string   { return "" }

func (v portValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return numberError(err)
	}
	if n < 1 || n > 65535 {
		return errors.New("a port is 1-65535")
	}
	*v.p = n
	return nil
}

type rankValue struct{ p *float64 }

func (v rankValue) String() string { return strconv.FormatFloat(*v.p, 'g', -1, 64) }
func (v rankValue) Type() string   { return "" }

func (v rankValue) Set(s string) error {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return numberError(err)
	}
	if !(f >= 0 && f <= 100) {
		return errors.New("a percentile rank is 0-100")
	}
	*v.p = f
	return nil
}

type durationValue struct{ p *time.Duration }

func (v durationValue) String() string { return v.p.String() }
func (v durationValue) Type() string   { return "" }

func (v durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err == nil && d <= 0 {
		err = errors.New("a time above 0, such as 5s")
	}
	*v.p = d
	return err
}

// sizesValue is a list of sizes, each of which may be repeated: "16,8192:4".
type sizesValue struct{ p *[]int64 }

func (v sizesValue) Type() string { return "" }

func (v sizesValue) String() string {
	var words []string
	for _, n := range *v.p {
		words = append(words, strconv.FormatInt(n, 10))
	}
	return strings.Join(words, ",")
}

// maxPieces bounds a list before it is created; perf has its own limit.
const maxPieces = 4096

func (v sizesValue) Set(s string) error {
	var list []int64
	for item := range strings.SplitSeq(s, ",") {
		size, times, repeated := strings.Cut(item, ":")
		n, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			return fmt.Errorf("size %q: %w", size, numberError(err))
		}
		count := 1
		if repeated {
			if count, err = strconv.Atoi(times); err != nil || count < 1 || count > maxPieces {
				return fmt.Errorf("size %q: a count is 1-%d", item, maxPieces)
			}
		}
		list = append(list, slices.Repeat([]int64{n}, count)...)
		if len(list) > maxPieces {
			return fmt.Errorf("more than %d sizes", maxPieces)
		}
	}
	*v.p = list
	return nil
}

type cpusValue struct{ p *[]int }

func (v cpusValue) String() string { return cpu.FormatList(*v.p) }
func (v cpusValue) Type() string   { return "" }

func (v cpusValue) Set(s string) (err error) {
	*v.p, err = cpu.ParseList(s)
	return err
}

// listValue collects each use of the option.
type listValue struct{ p *[]string }

func (v listValue) String() string     { return strings.Join(*v.p, " ") }
func (v listValue) Type() string       { return "" }
func (v listValue) Set(s string) error { *v.p = append(*v.p, s); return nil }
