package cpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goucx/goucx/ucs"
)

// MaxCPUs bounds processor numbers. So a list from an untrusted source cannot cause an
// unbounded allocation.
const MaxCPUs = 1 << 16

// ParseList parses processor numbers and ranges in the format of sysfs and taskset, such as
// "0-3,8". The result keeps the order and contains each number once. An empty text results
// in an empty list.
//
// Errors: ucs.ErrInvalid, with the invalid item.
func ParseList(s string) ([]int, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	var list []int
	seen := map[int]bool{}
	for item := range strings.SplitSeq(s, ",") {
		lo, hi, err := parseRange(item)
		if err != nil {
			return nil, fmt.Errorf("processor list %q: %w", s, err)
		}
		for c := lo; c <= hi; c++ {
			if !seen[c] {
				seen[c] = true
				list = append(list, c)
			}
		}
	}
	return list, nil
}

func parseRange(item string) (lo, hi int, err error) {
	first, last, isRange := strings.Cut(item, "-")
	if !isRange {
		last = first
	}
	lo, okLo := parseNumber(first)
	hi, okHi := parseNumber(last)
	if !okLo || !okHi || lo > hi {
		return 0, 0, fmt.Errorf("%w: %q is neither a number below %d nor a range of such", ucs.ErrInvalid, item, MaxCPUs)
	}
	return lo, hi, nil
}

func parseNumber(s string) (int, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 32)
	return int(n), err == nil && n < MaxCPUs
}

// FormatList formats a list with ranges, in its order, so that ParseList can parse it.
func FormatList(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(list[j]))
		}
		i = j + 1
	}
	return b.String()
}
