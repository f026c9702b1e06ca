package config

import (
	"iter"
)

// Set is the result of Load: every row's value with its origin. It is immutable; any goroutine may
// read it.
type Set struct {
	rows    []tableRow
	entries map[string]entry // the winning entry of each name
	values  map[string]value // the parsed values of the rows
}

type tableRow struct {
	section string
	Setting
}

// entry is a name and its text from one source.
type entry struct {
	name     string // in capitals, without UCX_
	text     string
	origin   Origin
	filtered bool // from a section of ucx.conf for certain hosts
}

type value struct {
	parsed any
	origin Origin
	via    string // the alias or wider name that has the value, or ""
}

// Value is one row with its current value, for display.
type Value struct {
	Section, Name string
	Text          string // the value, in UCX's spelling: 8K, 2000.00us
	Default       string // as Text
	Unit          string
	Help          string
	Allowed       string
	Aliases       []string
	Fallbacks     []string
	Origin        Origin
	InheritedFrom string // the alias or wider name from which the value comes, or ""
}

// Origin returns the source of the named setting's value. The zero Origin means the default, or a
// name that is in no table.
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
			def, _ := r.parse(r.Default()) // New has checked it
			if !yield(Value{
				Section: r.section, Name: r.Name(), Text: r.format(v.parsed), Default: r.format(def),
				Unit: r.Unit(), Help: r.Help(), Allowed: r.Allowed(), Aliases: r.Aliases(), Fallbacks: r.Fallbacks(),
				Origin: v.origin, InheritedFrom: v.via,
			}) {
				return
			}
		}
	}
}
