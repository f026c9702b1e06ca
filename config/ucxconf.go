package config

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// confLine is one key=value of ucx.conf.
type confLine struct {
	key, value string
	line       int // from 1
}

// confSection is a [section] of ucx.conf. The part before the first heading is a section without a
// name.
type confSection struct {
	name  string
	line  int
	lines []confLine
}

// parseConf parses UCX's format: key=value or key:value, [section], and comments from # or ; at
// the beginning of a line and from ; after a space. Indentation is ignored. A name that `ucx_info
// -cfa` marks as deprecated has no value and is skipped. It returns the numbers of all malformed
// lines; the other lines are valid.
//
// Source: ini.c of UCX (inih with its defaults).
func parseConf(text []byte) (sections []confSection, bad []int) {
	sections = []confSection{{}}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	n := 0
	for raw := range bytes.SplitSeq(text, []byte("\n")) {
		n++
		line := clean(string(raw))
		switch {
		case line == "" || line[0] == '#' || line[0] == ';' || isDeprecated(line):
		case line[0] == '[':
			name, _, ok := strings.Cut(line[1:], "]")
			if !ok {
				bad = append(bad, n)
			}
			// Also after a malformed heading: its lines must not join the section above.
			sections = append(sections, confSection{name: clean(name), line: n})
		default:
			key, value, ok := cutKey(line)
			if !ok {
				bad = append(bad, n)
				continue
			}
			last := &sections[len(sections)-1]
			last.lines = append(last.lines, confLine{key, value, n})
		}
	}
	return sections, bad
}

// isDeprecated matches "UCX_SELF_MAX_SHORT (deprecated)".
func isDeprecated(line string) bool {
	name, ok := strings.CutSuffix(line, " (deprecated)")
	name, prefixed := strings.CutPrefix(name, Prefix)
	return ok && prefixed && validName(name)
}

func cutKey(line string) (key, value string, ok bool) {
	i := strings.IndexAny(line, "=:")
	if i <= 0 {
		return "", "", false
	}
	key, value = clean(line[:i]), line[i+1:]
	for j := 1; j < len(value); j++ {
		if value[j] == ';' && (value[j-1] == ' ' || value[j-1] == '\t') {
			value = value[:j]
			break
		}
	}
	return key, clean(value), true
}

// readConf adds the entries of ucx.conf that apply to this host.
func (s *sources) readConf(path string, text []byte, host func() Host) {
	sections, bad := parseConf(text)
	for _, n := range bad {
		s.fail(fmt.Errorf("%s:%d: want key=value or [section]", path, n))
	}
	for _, sec := range sections {
		// Every filter of the section, at any position in it, must match the host; case is ignored.
		differs := func(l confLine) bool {
			return isFilter(l.key) && !glob(strings.ToLower(l.value), strings.ToLower(host().field(l.key)))
		}
		if !slices.ContainsFunc(sec.lines, differs) {
			s.addSection(path, sec)
		}
	}
}

// addSection adds a section's settings. A duplicate name within a section is probably a mistake
// and causes a warning. Across sections it is the intended use.
func (s *sources) addSection(path string, sec confSection) {
	first := map[string]int{}
	filtered := slices.ContainsFunc(sec.lines, func(l confLine) bool { return isFilter(l.key) })
	for _, l := range sec.lines {
		if isFilter(l.key) {
			continue
		}
		name := strings.TrimPrefix(l.key, Prefix)
		if n, dup := first[name]; dup {
			s.warn("%s: %s%s is set in lines %d and %d; the later one counts", path, Prefix, name, n, l.line)
		}
		first[name] = l.line
		s.entries = append(s.entries, entry{
			name: name, text: l.value, origin: Origin{File, fmt.Sprintf("%s:%d", path, l.line)}, filtered: filtered,
		})
	}
}
