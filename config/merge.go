package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// newSet collects the rows of the tables. One row may be in several tables. Two rows with the same
// name are a programming error.
func newSet(tables []Table) (*Set, error) {
	s := &Set{entries: map[string]entry{}, values: map[string]value{}}
	seen := map[string]Setting{}
	var errs []error
	for _, t := range tables {
		for _, r := range t.Settings {
			other, dup := seen[r.Name()]
			if dup && other != r {
				errs = append(errs, fmt.Errorf("setting %s is declared twice, the second time in table %q", r.Name(), t.Section))
			}
			if dup {
				continue
			}
			seen[r.Name()] = r
			s.rows = append(s.rows, tableRow{t.Section, r})
		}
	}
	return s, errors.Join(errs...)
}

// resolve sets the value of each row from the entries. A row's own name takes precedence over a
// wider name, whatever their sources. That is UCX's rule; it lets a file tune one transport below
// a general variable. Only the winning entry is parsed, so that the environment can override a bad
// value in a file.
func (s *Set) resolve() error {
	var errs []error
	for _, r := range s.rows {
		e, via := s.entryFor(r.Setting)
		v, err := r.parse(e.text)
		if err != nil {
			errs = append(errs, badValue(r.Setting, e, via, err))
			continue
		}
		s.values[r.Name()] = value{parsed: v, origin: e.origin, via: via}
	}
	return errors.Join(errs...)
}

// entryFor returns the entry from which r takes its value, and the alias or wider name of that
// entry, or "".
func (s *Set) entryFor(r Setting) (e entry, via string) {
	if e, ok := s.entries[r.Name()]; ok && e.origin.Kind == Flag {
		return e, ""
	}
	for _, n := range r.Aliases() {
		if e, ok := s.entries[n]; ok {
			return e, n
		}
	}
	if e, ok := s.entries[r.Name()]; ok {
		return e, ""
	}
	for _, n := range r.Fallbacks() {
		if e, ok := s.entries[n]; ok {
			return e, n
		}
	}
	return entry{name: r.Name(), text: r.Default()}, ""
}

func badValue(r Setting, e entry, via string, err error) error {
	name := Prefix + r.Name()
	if slices.Contains(r.Aliases(), via) {
		name += " (also " + Prefix + via + ")"
	} else if via != "" {
		name += " (which inherits " + Prefix + via + ")"
	}
	const longest = 100
	text := e.text
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	return fmt.Errorf("%s: bad value %q from %s: %w; allowed: %s", name, text, e.origin, err, r.Allowed())
}

// With returns a copy of s in which flags, named as in Options.Flags, override values. It does not
// modify s. An unknown name or a bad value is an error.
func (s *Set) With(flags map[string]string) (*Set, error) { return s.WithFrom("", flags) }

// WithFrom is With for values that one command-line flag implies. where ("-D shm") is reported as
// their origin; "": each value is a flag of its own name.
func (s *Set) WithFrom(where string, flags map[string]string) (*Set, error) {
	if s == nil {
		s, _ = newSet([]Table{ownTable()})
	}
	c := &Set{rows: s.rows, entries: maps.Clone(s.entries), values: map[string]value{}}
	entries, err := s.flagEntries(flags)
	for _, e := range entries {
		if where != "" {
			e.origin.Where = where
		}
		c.entries[e.name] = e
	}
	if err := errors.Join(err, c.resolve()); err != nil {
		return nil, err
	}
	return c, nil
}
