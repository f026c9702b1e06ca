package config

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

var (
	errOverflow  = errors.New("too large")
	errUnderflow = errors.New("too small")
)

// quantity is a number and its unit: "1.5" and "GB".
type quantity struct{ number, unit string }

// splitQuantity splits digits, an optional decimal point and an optional exponent from the unit
// that follows. Signs are an error: no setting has negative quantities.
func splitQuantity(text string) (quantity, error) {
	s := clean(text)
	n := digits(s)
	if n < len(s) && s[n] == '.' {
		n += 1 + digits(s[n+1:])
	}
	if n == 0 || s[:n] == "." {
		return quantity{}, errSyntax
	}
	if e := exponent(s[n:]); e > 0 {
		n += e
	}
	return quantity{number: s[:n], unit: clean(s[n:])}, nil
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// exponent returns the length of a leading e12, e-6 or E+3 in s, else 0.
func exponent(s string) int {
	if s == "" || s[0] != 'e' && s[0] != 'E' {
		return 0
	}
	sign := 0
	if len(s) > 1 && (s[1] == '-' || s[1] == '+') {
		sign = 1
	}
	if d := digits(s[1+sign:]); d > 0 {
		return 1 + sign + d
	}
	return 0
}

// scale returns number x unit as a whole number. Whole numbers are exact up to limit (at least
// 2^53). Fractions are rounded to the nearest whole number, but not down to 0.
func (q quantity) scale(unit, limit uint64) (uint64, error) {
	if !strings.ContainsAny(q.number, ".eE") {
		n, err := strconv.ParseUint(q.number, 10, 64)
		hi, lo := bits.Mul64(n, unit)
		if err != nil || hi != 0 || lo > limit {
			return 0, errOverflow
		}
		return lo, nil
	}
	f, err := strconv.ParseFloat(q.number, 64)
	f *= float64(unit)
	if err != nil || math.IsInf(f, 0) {
		return 0, errOverflow
	}
	// Above 2^53, which is below every limit, float64 cannot represent every integer. Near 2^64
	// the conversion itself is undefined.
	n := math.Round(f)
	switch {
	case n > 1<<53:
		return 0, errOverflow
	case n == 0 && f > 0:
		return 0, errUnderflow // a time-out of 0.1 ns is not "no time-out"
	}
	return uint64(n), nil
}

// binaryPrefix returns the factor of k, m, g or t in either case, or 0.
func binaryPrefix(c byte) uint64 {
	switch c | 0x20 {
	case 'k':
		return 1 << 10
	case 'm':
		return 1 << 20
	case 'g':
		return 1 << 30
	case 't':
		return 1 << 40
	}
	return 0
}
