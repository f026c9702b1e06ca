package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// configDirName is the variable of the search path. It is not a setting, because it is needed
// before any file is read.
const configDirName = "CONFIG_DIR"

// known reports whether a row reads the name, directly, as an alias or as a wider name.
func (s *Set) known(name string) bool {
	return slices.ContainsFunc(s.rows, func(r tableRow) bool {
		return r.Name() == name || slices.Contains(r.Aliases(), name) || slices.Contains(r.Fallbacks(), name)
	})
}

// checkNames reports the entries that no row reads: each misspelled name with the nearest valid
// name, and those of UCX that goucx does not use. Both are errors in strict mode.
func (s *Set) checkNames(src *sources, strict bool) {
	strict = strict || StrictMode.Get(s)
	for _, e := range src.entries {
		switch {
		case s.known(e.name) || knownToUCX(e.name) || e.name == configDirName && e.origin.Kind == Env:
		case e.name == configDirName:
			src.warn("%s%s (%s) has a meaning in the environment only", Prefix, e.name, e.origin)
		case strict:
			src.fail(s.unknown(e))
		case e.origin.Kind != Env || WarnUnused.Get(s):
			src.warn("%v", s.unknown(e))
		}
	}
	s.checkUnused(src, strict)
}

func (s *Set) unknown(e entry) error {
	name := Prefix + e.name
	if len(e.name) >= len(Prefix) && strings.EqualFold(e.name[:len(Prefix)], Prefix) { // as the user wrote it: ucx_tls is not UCX_ucx_tls
		name = e.name
	}
	return fmt.Errorf("unknown setting %s (%s)%s", printable(name), e.origin, s.suggest(e.name))
}

// printable returns a name from a file in a form suited to a message: quoted if necessary, and
// truncated.
func printable(name string) string {
	const longest = 100
	if len(name) > longest {
		return fmt.Sprintf("%q...", name[:longest])
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", name)
	}
	return name
}

// suggest returns "; did you mean UCX_X?" with the nearest name, or "" if none is near.
func (s *Set) suggest(name string) string {
	var names []string
	for _, r := range s.rows {
		names = append(names, r.Name())
		names = append(names, r.Fallbacks()...) // aliases are among UCX's names
	}
	names = append(names, configDirName)
	names = append(names, slices.Sorted(maps.Keys(ucxNames()))...)
	best := Nearest(strings.TrimPrefix(strings.ToUpper(name), Prefix), names)
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s%s?", Prefix, best)
}

// Nearest returns the name that differs least from a mistyped one, the first of several. It returns
// "" if all differ in more than three letters, or in more than a third of them.
func Nearest(mistyped string, names []string) string {
	best, bestDist := "", 1+max(1, min(3, len(mistyped)/3))
	for _, n := range names {
		if d := distance(mistyped, n, bestDist); d < bestDist {
			best, bestDist = n, d
		}
	}
	return best
}

// distance returns the number of insertions, deletions, replacements and swaps of adjacent bytes
// between a and b (optimal string alignment). It returns limit if the lengths alone differ by that
// much.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
