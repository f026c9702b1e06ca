package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/ucs/cpu"
)

// refusal is the reason why goucx does not support what UCX's tool does.
type refusal string

func (r refusal) Error() string { return "not supported: " + string(r) }
func (r refusal) Unwrap() error { return errors.ErrUnsupported }

// unsupported returns the error of an option or value that only UCX supports.
func unsupported(why string) error { return refusal(why) }

// Reasons of refusals.
const (
	hostMemory  = "goucx has host memory only"
	noGPU       = "goucx has no GPU to start operations"
	noDaemon    = "goucx has no daemon that executes operations of another process"
	noStreams   = "goucx has no streams"
	onePiece    = "goucx sends one piece in a UCP or a short message"
	oneProgress = "timers run in a goroutine, which is no choice"
	noMAD       = "goucx has no InfiniBand subnet for management datagrams; name the server's host"
	noMPI       = "goucx finds the other side by the server's host name alone"
)

// value is the value of an option. get returns the spelling that is compared between the sides and
// shown if they differ.
type value struct {
	get func() string
	set func(string) error
	// words are the values that a shell completes; nil: others.
	words []string
}

func (v value) String() string     { return v.get() }
func (v value) Set(s string) error { return v.set(s) }
func (v value) Type() string       { return "" }

// parsed is a value of type T at p, which parse reads and format writes.
func parsed[T any](p *T, format func(T) string, parse func(string) (T, error)) pflag.Value {
	return value{get: func() string { return format(*p) }, set: func(s string) (err error) {
		*p, err = parse(s)
		if n, ok := errors.AsType[*strconv.NumError](err); ok {
			return n.Err // without strconv's function names
		}
		return err
	}}
}

// withWords returns v with the values that a shell completes.
func withWords(v pflag.Value, words string) pflag.Value {
	w := v.(value)
	w.words = strings.Fields(words)
	return w
}

// itself formats text.
func itself(s string) string { return s }

// errorValue is an option that always fails with err.
func errorValue(err error) pflag.Value {
	return value{get: func() string { return "" }, set: func(string) error { return err }}
}

// onlyValue is an option with one meaning, which the words of only spell. UCX knows the others too,
// which are refused with the reason why. pair allows "a,b".
func onlyValue(only, others, why string, pair bool) pflag.Value {
	accepted := strings.Fields(only)
	return value{words: accepted, get: func() string { return accepted[0] }, set: func(s string) error {
		parts := []string{s}
		if pair {
			parts = strings.SplitN(s, ",", 2)
		}
		for _, p := range parts {
			name, _, _ := strings.Cut(p, ":")
			switch {
			case contains(accepted, p):
			case contains(strings.Fields(others), name):
				return fmt.Errorf("%w; supported is %s", unsupported(why), only)
			default:
				return fmt.Errorf("known are %s %s", only, others)
			}
		}
		return nil
	}}
}

// memoryValue is "host" or "heap", for the sender's and the receiver's memory, or for one after the other.
func memoryValue(send, recv *bool) pflag.Value {
	kinds := onlyValue("host heap", "cuda cuda-managed cuda-async rocm rocm-managed rdma ze-host ze-device ze-managed", hostMemory, true)
	text := func(heap bool) string {
		if heap {
			return "heap"
		}
		return "host"
	}
	return value{words: []string{"host", "heap"}, get: func() string {
		if *send == *recv {
			return text(*send)
		}
		return text(*send) + "," + text(*recv)
	}, set: func(s string) error {
		if err := kinds.Set(s); err != nil {
			return err
		}
		first, second, two := strings.Cut(s, ",")
		if *send, *recv = first == "heap", first == "heap"; two {
			*recv = second == "heap"
		}
		return nil
	}}
}

func contains(list []string, s string) bool { return slices.Contains(list, s) }

func boolValue(p *bool) pflag.Value { return parsed(p, strconv.FormatBool, strconv.ParseBool) }

func stringValue(p *string) pflag.Value {
	return parsed(p, strconv.Quote, func(s string) (string, error) { return s, nil })
}

// testValue is the name of a test in the table.
func testValue(p *string) pflag.Value {
	var names []string
	for _, t := range perf.Tests() {
		if !t.Later {
			names = append(names, t.Name)
		}
	}
	return withWords(parsed(p, itself, func(s string) (string, error) {
		_, err := perf.Lookup(s)
		return s, err
	}), strings.Join(names, " "))
}

// int64Value and intValue leave range checks to perf.
func int64Value(p *int64) pflag.Value { return parsed(p, formatInt64, parseInt64) }

func formatInt64(n int64) string         { return strconv.FormatInt(n, 10) }
func parseInt64(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }

// lengthValue is a length in bytes, with or without a suffix.
func lengthValue(p *int64) pflag.Value { return parsed(p, formatInt64, parseLength) }

// parseLength parses "4096", "4k", "4KiB" or "0x1000".
func parseLength(s string) (int64, error) {
	n, err := config.Size(0, 1<<62).Parse(s)
	if err != nil {
		return 0, fmt.Errorf("%w: want bytes, as 4096, 4k or 0x1000", err)
	}
	return int64(n), nil
}

func intValue(p *int) pflag.Value { return parsed(p, strconv.Itoa, strconv.Atoi) }

// threadsValue checks the range here, since perf treats 0 as unset. A number of a GPU's blocks may follow.
func threadsValue(p *int) pflag.Value {
	return parsed(p, strconv.Itoa, func(s string) (int, error) {
		s, blocks, has := strings.Cut(s, ":")
		if has && blocks != "1" {
			return *p, fmt.Errorf("blocks %q: %w; supported is 1", blocks, unsupported(noGPU))
		}
		n, err := strconv.Atoi(s)
		if err == nil && n < 1 {
			err = fmt.Errorf("number of threads %d is out of range: 1-%d", n, perf.MaxThreads)
		}
		return n, err
	})
}

func portValue(p *int) pflag.Value {
	return parsed(p, strconv.Itoa, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err == nil && (n < 1 || n > 65535) {
			err = errors.New("a port is 1-65535")
		}
		return n, err
	})
}

func rankValue(p *float64) pflag.Value {
	format := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	return parsed(p, format, func(s string) (float64, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err == nil && !(f >= 0 && f <= 100) {
			err = errors.New("a percentile rank is 0-100")
		}
		return f, err
	})
}

func durationValue(p *time.Duration) pflag.Value {
	return parsed(p, time.Duration.String, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err == nil && d <= 0 {
			err = errors.New("a time above 0, such as 5s")
		}
		return d, err
	})
}

func choiceValue(p *string, from string) pflag.Value {
	return withWords(parsed(p, itself, func(s string) (string, error) {
		if !contains(strings.Fields(from), s) {
			return *p, fmt.Errorf("known are %s", from)
		}
		return s, nil
	}), from)
}

// errorModeValue takes UCX's modes of endpoints. All but none are one here.
func errorModeValue(p *bool) pflag.Value {
	format := func(on bool) string {
		if on {
			return "peer"
		}
		return "none"
	}
	return withWords(parsed(p, format, func(s string) (bool, error) {
		if !contains(strings.Fields(errorModes), s) {
			return *p, fmt.Errorf("known are %s", errorModes)
		}
		return s != "none", nil
	}), errorModes)
}

// waitModeValue selects whether waits block.
func waitModeValue(p *bool) pflag.Value {
	format := func(sleep bool) string {
		if sleep {
			return "sleep"
		}
		return "poll"
	}
	return withWords(parsed(p, format, func(s string) (bool, error) {
		if s != "poll" && s != "sleep" {
			return *p, errors.New("known are poll sleep")
		}
		return s == "sleep", nil
	}), "poll sleep")
}

// layoutValue parses UCX's names for both APIs; contig is the default.
func layoutValue(p *perf.Layout) pflag.Value {
	format := func(l perf.Layout) string { return string(l) }
	return withWords(parsed(p, format, func(s string) (perf.Layout, error) {
		switch l := perf.Layout(s); l {
		case perf.Short, perf.Bcopy, perf.Zcopy:
			return l, nil
		case "contig", "contig,contig":
			return *p, nil
		case "shortiov", "iov", "iov,iov", "iov,contig", "contig,iov", "sgl":
			return *p, unsupported(onePiece)
		default:
			return *p, errors.New("known are short bcopy zcopy contig")
		}
	}), "short bcopy zcopy contig")
}

// maxPieces bounds a list before it is created; perf has its own limit.
const maxPieces = 4096

// sizesValue is a list of sizes, each of which may be repeated: "16,8k:4".
func sizesValue(p *[]int64) pflag.Value {
	format := func(list []int64) string {
		var words []string
		for _, n := range list {
			words = append(words, formatInt64(n))
		}
		return strings.Join(words, ",")
	}
	return value{get: func() string { return format(*p) }, set: func(s string) error {
		var list []int64
		for item := range strings.SplitSeq(s, ",") {
			size, times, repeated := strings.Cut(item, ":")
			n, err := parseLength(size)
			if err != nil {
				return fmt.Errorf("size %q: %w", size, err)
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
		*p = list
		return nil
	}}
}

func cpusValue(p *[]int) pflag.Value { return parsed(p, cpu.FormatList, cpu.ParseList) }

// calibrateValue is a transport with several ways to copy a message.
func calibrateValue(p *string) pflag.Value {
	return withWords(parsed(p, itself, func(s string) (string, error) {
		if s == "shm" {
			return s, nil
		}
		for _, c := range transports.All() {
			if s == c.Name() || contains(c.Aliases(), s) && c.Name() != "shm" {
				return "", unsupported("of goucx's transports only shm has several ways to copy a message")
			}
		}
		return "", errors.New("known is shm")
	}), "shm")
}

// policies returns the names of the built-in sharing policies.
func policies() []string {
	var names []string
	for _, p := range sharing.Policies() {
		names = append(names, p.Name)
	}
	return names
}

// listValue collects each use of the option.
func listValue(p *[]string) pflag.Value {
	format := func(list []string) string { return strings.Join(list, " ") }
	return parsed(p, format, func(s string) ([]string, error) { return append(*p, s), nil })
}
