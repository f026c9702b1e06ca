package config

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// RangeSet is a set of whole numbers stored as ranges. It is immutable.
type RangeSet struct{ spans []span }

type span struct{ lo, hi int } // both inclusive; sorted, with gaps between them

// Ranges parses numbers and ranges such as "0-3,8", each from minimum (at least 0) to maximum. The
// empty text is the empty set.
func Ranges(minimum, maximum int) Parser[RangeSet] {
	return Parser[RangeSet]{
		Parse: func(text string) (RangeSet, error) {
			var spans []span
			for item := range strings.SplitSeq(text, ",") {
				if item = clean(item); item == "" {
					continue
				}
				sp, err := parseSpan(item)
				if err != nil {
					return RangeSet{}, err
				}
				if sp.lo < minimum || sp.hi > maximum {
					return RangeSet{}, fmt.Errorf("%s out of range %d to %d", item, minimum, maximum)
				}
				spans = append(spans, sp)
			}
			return RangeSet{normalize(spans)}, nil
		},
		Format:  RangeSet.String,
		Allowed: fmt.Sprintf("numbers and ranges from %d to %d such as 0-3,8", minimum, maximum),
	}
}

func parseSpan(item string) (span, error) {
	a, b, isRange := strings.Cut(item, "-")
	if !isRange {
		b = a
	}
	a, b = clean(a), clean(b)
	if a == "" || b == "" || digits(a) != len(a) || digits(b) != len(b) {
		return span{}, fmt.Errorf("%q %w", item, errSyntax)
	}
	lo, errLo := strconv.Atoi(a)
	hi, errHi := strconv.Atoi(b)
	if errLo != nil || errHi != nil {
		return span{}, fmt.Errorf("%s %w", item, errOverflow)
	}
	if lo > hi {
		return span{}, fmt.Errorf("%s: the first number is larger than the last", item)
	}
	return span{lo, hi}, nil
}

// normalize sorts spans and merges adjacent ones, so that equal sets have equal spans.
func normalize(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return a.lo - b.lo })
	var out []span
	for _, s := range spans {
		// s.lo-1 instead of hi+1: lo is at least 0, hi may be the largest int.
		if n := len(out); n > 0 && s.lo-1 <= out[n-1].hi {
			out[n-1].hi = max(out[n-1].hi, s.hi)
			continue
		}
		out = append(out, s)
	}
	return out
}

// Contains reports whether v is in the set.
func (r RangeSet) Contains(v int) bool {
	return slices.ContainsFunc(r.spans, func(s span) bool { return s.lo <= v && v <= s.hi })
}

// Empty reports whether the set is empty.
func (r RangeSet) Empty() bool { return len(r.spans) == 0 }

// All yields the numbers in ascending order. A set may span the whole int range; the caller stops
// early if it does not need all.
func (r RangeSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, s := range r.spans {
			for v := s.lo; ; v++ {
				if !yield(v) {
					return
				}
				if v == s.hi { // not v <= hi: hi may be the largest int
					break
				}
			}
		}
	}
}

// String returns the canonical spelling: "0-3,8".
func (r RangeSet) String() string {
	items := make([]string, len(r.spans))
	for i, s := range r.spans {
		items[i] = strconv.Itoa(s.lo)
		if s.hi > s.lo {
			items[i] += "-" + strconv.Itoa(s.hi)
		}
	}
	return strings.Join(items, ",")
}
