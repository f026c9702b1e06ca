package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Parser converts a setting's text to a value and back. Parse ignores spaces around the text.
// Parse(Format(v)) returns v for every v that Parse can return.
type Parser[T any] struct {
	Parse   func(text string) (T, error)
	Format  func(v T) string
	Allowed string // completes "allowed: ..."
}

// errSyntax is the error for text that is not a value of the kind; the caller adds the allowed
// values.
var errSyntax = errors.New("not understood")

const (
	wordInf  = "inf"
	wordAuto = "auto"
)

func clean(text string) string { return strings.TrimSpace(text) }

func isWord(text, word string) bool { return strings.EqualFold(clean(text), word) }

// String parses any text of one line.
func String() Parser[string] {
	return Parser[string]{
		Parse: func(text string) (string, error) {
			text = clean(text)
			for _, c := range text {
				if c < ' ' && c != '\t' || c == 0x7f || c == '\uFFFD' {
					return "", errors.New("holds a control character or is not UTF-8")
				}
			}
			return text, nil
		},
		Format:  func(v string) string { return v },
		Allowed: "text of one line",
	}
}

// Int parses a decimal or 0x-prefixed number from minimum to maximum. If maximum is math.MaxInt,
// "inf" denotes it.
func Int(minimum, maximum int) Parser[int] {
	allowed := fmt.Sprintf("a number from %s to %s", formatInt(minimum), formatInt(maximum))
	return Parser[int]{
		Parse: func(text string) (int, error) {
			v, err := parseInt(clean(text))
			if err != nil {
				return 0, err
			}
			return v, between(v, minimum, maximum, formatInt)
		},
		Format:  formatInt,
		Allowed: allowed,
	}
}

func parseInt(s string) (int, error) {
	if isWord(s, wordInf) {
		return math.MaxInt, nil
	}
	base, digits := 10, s
	if rest, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok && rest != "" && rest[0] != '-' && rest[0] != '+' {
		base, digits = 16, rest
	}
	v, err := strconv.ParseInt(digits, base, strconv.IntSize)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errors.New("out of range")
	}
	if err != nil {
		return 0, errSyntax
	}
	return int(v), nil
}

func formatInt(v int) string {
	if v == math.MaxInt {
		return wordInf
	}
	return strconv.Itoa(v)
}

// IntUpTo parses what [Int] parses; a number above maximum counts as maximum.
func IntUpTo(minimum, maximum int) Parser[int] {
	p := Int(minimum, math.MaxInt)
	return Parser[int]{
		Parse: func(text string) (int, error) {
			v, err := p.Parse(text)
			return min(v, maximum), err
		},
		Format:  formatInt,
		Allowed: fmt.Sprintf("a number from %d; above %d counts as %d", minimum, maximum, maximum),
	}
}

// Enum parses one of names, in any case, and returns it as spelled in names.
func Enum(names ...string) Parser[string] {
	return Parser[string]{
		Parse: func(text string) (string, error) {
			for _, n := range names {
				if isWord(text, n) {
					return n, nil
				}
			}
			return "", errSyntax
		},
		Format:  func(v string) string { return v },
		Allowed: "one of " + strings.Join(names, ", "),
	}
}

// Optional is a value or the word auto, for which the program chooses.
type Optional[T any] struct {
	Value T // the zero value if Auto is set
	Auto  bool
}

// Or returns the value, or v if it is auto.
func (o Optional[T]) Or(v T) T {
	if o.Auto {
		return v
	}
	return o.Value
}

// OrAuto parses what p parses, and "auto".
func OrAuto[T any](p Parser[T]) Parser[Optional[T]] {
	return Parser[Optional[T]]{
		Parse: func(text string) (Optional[T], error) {
			if isWord(text, wordAuto) {
				return Optional[T]{Auto: true}, nil
			}
			v, err := p.Parse(text)
			if err != nil {
				return Optional[T]{}, err
			}
			return Optional[T]{Value: v}, nil
		},
		Format: func(o Optional[T]) string {
			if o.Auto {
				return wordAuto
			}
			return p.Format(o.Value)
		},
		Allowed: p.Allowed + ", or auto",
	}
}

// ByNode holds a value for peers on the same host, and one for all others.
type ByNode[T comparable] struct{ Intra, Inter T }

// IntraInter parses what p parses, for all peers, and comma-separated pairs of key and value with
// the keys intra and inter. A value without a key is that of a key without a value.
//
// Source: ucs_config_sscanf_key_value of UCX.
func IntraInter[T comparable](p Parser[T]) Parser[ByNode[T]] {
	return Parser[ByNode[T]]{
		Parse: func(text string) (v ByNode[T], err error) {
			texts := map[string]string{}
			for item := range strings.SplitSeq(text, ",") {
				key, value, ok := strings.Cut(item, ":")
				switch key = strings.ToLower(clean(key)); {
				case !ok:
					key, value = "", item
				case key != "intra" && key != "inter":
					return v, fmt.Errorf("%q is neither intra nor inter", key)
				}
				if _, twice := texts[key]; twice {
					return v, fmt.Errorf("%q stands after another value of the same", clean(item))
				}
				texts[key] = value
			}
			parse := func(key string) (T, error) {
				value, ok := texts[key]
				if !ok {
					value, ok = texts[""]
				}
				if !ok {
					return v.Intra, fmt.Errorf("no value for %s", key)
				}
				return p.Parse(value)
			}
			if v.Intra, err = parse("intra"); err == nil {
				v.Inter, err = parse("inter")
			}
			return v, err
		},
		Format: func(v ByNode[T]) string {
			if v.Intra == v.Inter {
				return p.Format(v.Intra)
			}
			return "intra:" + p.Format(v.Intra) + ",inter:" + p.Format(v.Inter)
		},
		Allowed: p.Allowed + "; for peers on this host and others: intra:VALUE,inter:VALUE",
	}
}

// between returns nil if minimum <= v <= maximum.
func between[T int | Bytes | time.Duration](v, minimum, maximum T, format func(T) string) error {
	if v < minimum || v > maximum {
		return fmt.Errorf("out of range %s to %s", format(minimum), format(maximum))
	}
	return nil
}
