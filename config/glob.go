package config

import (
	"strconv"
	"strings"
)

// glob reports whether pattern matches all of s. * matches any run of bytes, ? one byte, [abc],
// [a-z] and [!a-z] one byte of a class. [8-12] matches a decimal number of that range if a bound
// has several digits. An unclosed [ is an ordinary byte.
//
// It backtracks only to the last *, so its cost is bounded by len(pattern) x len(s).
func glob(pattern, s string) bool {
	p, i := 0, 0
	star, mark := -1, 0
	for {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
			continue
		case p == len(pattern) && i == len(s):
			return true
		case p < len(pattern):
			if np, ni, ok := globOne(pattern, p, s, i); ok {
				p, i = np, ni
				continue
			}
		}
		if star < 0 || mark >= len(s) {
			return false
		}
		mark++
		p, i = star+1, mark
	}
}

// globOne matches the element at pattern[p:] at s[i:] and returns the offsets behind both.
func globOne(pattern string, p int, s string, i int) (int, int, bool) {
	if pattern[p] == '[' {
		if n := strings.IndexByte(pattern[p+1:], ']'); n > 0 {
			used, ok := globClass(pattern[p+1:p+1+n], s[i:])
			return p + n + 2, i + used, ok
		}
	}
	if i == len(s) || pattern[p] != '?' && pattern[p] != s[i] {
		return p, i, false
	}
	return p + 1, i + 1, true
}

// globClass matches the content of a bracket at the start of s and returns the number of matched
// bytes.
func globClass(class, s string) (int, bool) {
	if lo, hi, ok := numberRange(class); ok {
		n := digits(s)
		v, err := strconv.ParseUint(s[:n], 10, 64)
		return n, err == nil && (n == 1 || s[0] != '0') && v >= lo && v <= hi
	}
	if s == "" {
		return 0, false
	}
	class, not := strings.CutPrefix(class, "!")
	for c := class; c != ""; {
		lo, hi := c[0], c[0]
		c = c[1:]
		if len(c) >= 2 && c[0] == '-' {
			hi, c = c[1], c[2:]
		}
		if lo <= s[0] && s[0] <= hi {
			return 1, !not
		}
	}
	return 1, not
}

// numberRange parses "0-12": two numbers, of which at least one has several digits.
func numberRange(class string) (lo, hi uint64, ok bool) {
	a, b, found := strings.Cut(class, "-")
	if !found || len(a)+len(b) < 3 || digits(a) != len(a) || digits(b) != len(b) {
		return 0, 0, false
	}
	lo, errLo := strconv.ParseUint(a, 10, 64)
	hi, errHi := strconv.ParseUint(b, 10, 64)
	return lo, hi, errLo == nil && errHi == nil
}
