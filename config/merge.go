package config

import (
	"errors"
	"fmt"
	"maps"
)

// newSet lays the tables out. A row may stand in several tables (once is
// enough); two rows of one name are a programmer's error.
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

// resolve gives each row its value from the entries. A row's own name goes
// before a wider one, whatever their sources: that is UCX's rule, and lets a
// file tune one transport under a general variable. Only the winner is parsed,
// so that a bad value in a file can be overridden from the environment.
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

// entryFor is the entry that r takes its value from, and the wider name it
// stands under, or "".
func (s *Set) entryFor(r Setting) (e entry, via string) {
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
	if via != "" {
		name += " (which inherits " + Prefix + via + ")"
	}
	const longest = 100
	text := e.text
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	return fmt.Errorf("%s: bad value %q from %s: %w; allowed: %s", name, text, e.origin, err, r.Allowed())
}

// With is a copy of s with the flags laid over it, named as in Options.Flags.
// s stays as it is. An unknown name or a bad value is an error.
func (s *Set) With(flags map[string]string) (*Set, error) { return s.WithFrom("", flags) }

// WithFrom is With for values that one flag of the command stands for: where
// ("-D shm") is told as their origin; "": each is a flag of its own name.
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
