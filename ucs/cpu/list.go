package cpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goucx/goucx/ucs"
)

// MaxCPUs bounds processor numbers, so that a list from outside cannot make us
// allocate without end.
const MaxCPUs = 1 << 16

// ParseList reads processor numbers and ranges as sysfs writes them and taskset
// takes them: "0-3,8". The result keeps the order and holds each number once; an
// empty text gives an empty list.
//
// Errors: ucs.ErrInvalid, naming the item.
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

// FormatList writes a list with ranges, in its order: what ParseList reads.
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
