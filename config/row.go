package config

import (
	"fmt"
	"slices"
	"strings"
)

// Prefix stands before every setting's name in the environment and in
// ucx.conf.
const Prefix = "UCX_"

// Setting is one row as tables, ucx_info -c and the documents see it. Only
// [Row] implements it.
type Setting interface {
	Name() string        // in capitals, without UCX_
	Default() string     // as the table spells it
	Unit() string        // of a bare number: "bytes", "s", ...; "" where none applies
	Help() string        // one sentence or more, for people
	Allowed() string     // what a value may look like
	Fallbacks() []string // wider names whose value holds where this name has none, nearest first

	parse(text string) (any, error)
	format(v any) string
}

// Table is what a package contributes: the rows of one section, in the order
// in which they are shown.
type Table struct {
	Section  string // a heading: "shm", "tag matching"
	Settings []Setting
}

// Row is a setting whose values have type T. Rows are made once, as
// package-level variables, and are never changed afterwards.
type Row[T any] struct {
	name, def, unit, help string
	parser                Parser[T]
	value                 T // the parsed default
	wider                 []string
}

// New makes a row. The name is given without UCX_, in capitals; def is parsed
// by p, and New panics where it does not parse, or the name is malformed:
// both are a programmer's errors that the first run shows.
func New[T any](name, def string, p Parser[T], unit, help string) *Row[T] {
	if !validName(name) {
		panic(fmt.Sprintf("config: setting name %q: want capitals, digits and _, without %s", name, Prefix))
	}
	v, err := p.Parse(def)
	if err != nil {
		panic(fmt.Sprintf("config: default %q of setting %s: %v", def, name, err))
	}
	return &Row[T]{name: name, def: def, unit: unit, help: help, parser: p, value: v}
}

// Inherit names wider settings, the nearest first, and returns r: where r's
// own name has no value in any source, the first of these that has one gives
// it. RC_VERBS_TX_QUEUE_LEN may inherit RC_TX_QUEUE_LEN and IB_TX_QUEUE_LEN,
// as UCX's nested tables do. The names need not be rows. Call it where the row
// is declared, never later.
func (r *Row[T]) Inherit(names ...string) *Row[T] {
	for _, n := range names {
		if !validName(n) || n == r.name {
			panic(fmt.Sprintf("config: setting %s inherits from malformed name %q", r.name, n))
		}
	}
	r.wider = append(r.wider, names...)
	return r
}

// Get is the row's value in s: the default where s is nil or was loaded
// without the row's table. A map look-up: for the control path only.
func (r *Row[T]) Get(s *Set) T {
	if s == nil {
		return r.value
	}
	if v, ok := s.values[r.name].parsed.(T); ok {
		return v
	}
	return r.value
}

// Name is the setting's name in capitals, without UCX_.
func (r *Row[T]) Name() string { return r.name }

// Default is the default as the table spells it.
func (r *Row[T]) Default() string { return r.def }

// Unit is the unit of a bare number, "" where none applies.
func (r *Row[T]) Unit() string { return r.unit }

// Help explains the setting.
func (r *Row[T]) Help() string { return r.help }

// Allowed says what a value may look like.
func (r *Row[T]) Allowed() string { return r.parser.Allowed }

// Fallbacks lists the wider names that Inherit gave, the nearest first. The
// slice is a copy.
func (r *Row[T]) Fallbacks() []string { return slices.Clone(r.wider) }

func (r *Row[T]) parse(text string) (any, error) { return r.parser.Parse(text) }

func (r *Row[T]) format(v any) string {
	t, ok := v.(T)
	if !ok {
		return ""
	}
	return r.parser.Format(t)
}

// validName accepts capitals, digits and single inner underscores' runs, with
// a capital first and without the UCX_ prefix.
func validName(n string) bool {
	if n == "" || n[0] < 'A' || n[0] > 'Z' || strings.HasPrefix(n, Prefix) {
		return false
	}
	for _, c := range []byte(n) {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}
