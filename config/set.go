package config

import (
	"iter"
)

// Set is the outcome of Load: every row's value with its origin. It never
// changes; any goroutine may read it.
type Set struct {
	rows    []tableRow
	entries map[string]entry // what the sources say, by name, the winner only
	values  map[string]value // what the rows make of it
}

type tableRow struct {
	section string
	Setting
}

// entry is one name and its text, as a source gave them.
type entry struct {
	name   string // in capitals, without UCX_
	text   string
	origin Origin
}

type value struct {
	parsed any
	origin Origin
	via    string // the wider name that the value was inherited from, or ""
}

// Value is one row with its current value, for people and tools to read.
type Value struct {
	Section, Name string
	Text          string // the value, in canonical spelling
	Default       string
	Unit          string
	Help          string
	Allowed       string
	Fallbacks     []string
	Origin        Origin
	InheritedFrom string // the wider name that gave the value, or ""
}

// Origin tells where the named setting's value came from; the zero Origin is
// the default and the answer for a name that no table holds.
func (s *Set) Origin(name string) Origin {
	if s == nil {
		return Origin{}
	}
	return s.values[canonical(name)].origin
}

// All yields every row in table order.
func (s *Set) All() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if s == nil {
			return
		}
		for _, r := range s.rows {
			v := s.values[r.Name()]
			if !yield(Value{
				Section: r.section, Name: r.Name(), Text: r.format(v.parsed), Default: r.Default(),
				Unit: r.Unit(), Help: r.Help(), Allowed: r.Allowed(), Fallbacks: r.Fallbacks(),
				Origin: v.origin, InheritedFrom: v.via,
			}) {
				return
			}
		}
	}
}
