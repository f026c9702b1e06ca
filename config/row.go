package config

import (
	"fmt"
	"slices"
	"strings"
)

// Prefix precedes every setting's name in the environment and in ucx.conf.
const Prefix = "UCX_"

// Setting is one row, independent of its value type, for tables, ucx_info -c and the documents.
// Only [Row] implements it.
type Setting interface {
	Name() string        // in capitals, without UCX_
	Default() string     // in the table's spelling
	Unit() string        // unit of a number without unit: "bytes", "s", ...; "" if none applies
	Help() string        // one or more sentences
	Allowed() string     // description of the allowed values
	Aliases() []string   // UCX's narrower names of the same meaning, the preferred first
	Fallbacks() []string // wider names whose value applies if this name has none, nearest first

	parse(text string) (any, error)
	format(v any) string
}

// Table is the contribution of a package: the rows of one section, in display order.
type Table struct {
	Section  string // a heading: "shm", "tag matching"
	Settings []Setting
}

// Row is a setting whose values have type T. Rows are created once, as package-level variables,
// and are immutable.
type Row[T any] struct {
	name, def, unit, help string
	parser                Parser[T]
	value                 T // the parsed default
	aliases, fallbacks    []string
}

// New creates a row. The name is in capitals, without UCX_; p parses def. New panics if def does
// not parse or the name is malformed, which are programming errors that the first run detects.
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

// Inherit names wider settings, the nearest first, and returns r. If no source has a value for r's
// own name, r takes the value of the first of these that has one. RC_VERBS_TX_QUEUE_LEN may
// inherit RC_TX_QUEUE_LEN and IB_TX_QUEUE_LEN, as UCX's nested tables do. The names need not be
// rows. Inherit must be called only where the row is declared.
func (r *Row[T]) Inherit(names ...string) *Row[T] {
	for _, n := range names {
		if !validName(n) || n == r.name {
			panic(fmt.Sprintf("config: setting %s inherits from malformed name %q", r.name, n))
		}
	}
	r.fallbacks = append(r.fallbacks, names...)
	return r
}

// Alias names UCX's variables of the same meaning, for one of UCX's transports each, and returns r.
// The first that has a value takes precedence over r's own name, which is the wider one in UCX: of
// RC_VERBS_TX_QUEUE_LEN and RC_TX_QUEUE_LEN the former counts. A flag of r's own name beats them
// all. Alias must be called only where the row is declared.
func (r *Row[T]) Alias(names ...string) *Row[T] {
	for _, n := range names {
		if !validName(n) || n == r.name {
			panic(fmt.Sprintf("config: setting %s has the malformed alias %q", r.name, n))
		}
	}
	r.aliases = append(r.aliases, names...)
	return r
}

// Get returns the row's value in s. It returns the default if s is nil or was loaded without the
// row's table. It looks the name up in a map, so it is for the control path only.
func (r *Row[T]) Get(s *Set) T {
	if s == nil {
		return r.value
	}
	if v, ok := s.values[r.name].parsed.(T); ok {
		return v
	}
	return r.value
}

// Name returns the setting's name in capitals, without UCX_.
func (r *Row[T]) Name() string { return r.name }

// Default returns the default in the table's spelling.
func (r *Row[T]) Default() string { return r.def }

// Unit returns the unit of a number without unit, "" if none applies.
func (r *Row[T]) Unit() string { return r.unit }

// Help returns the description of the setting.
func (r *Row[T]) Help() string { return r.help }

// Allowed returns the description of the allowed values.
func (r *Row[T]) Allowed() string { return r.parser.Allowed }

// Aliases returns a copy of the names passed to Alias, the preferred first.
func (r *Row[T]) Aliases() []string { return slices.Clone(r.aliases) }

// Fallbacks returns a copy of the wider names passed to Inherit, the nearest first.
func (r *Row[T]) Fallbacks() []string { return slices.Clone(r.fallbacks) }

func (r *Row[T]) parse(text string) (any, error) { return r.parser.Parse(text) }

func (r *Row[T]) format(v any) string {
	t, ok := v.(T)
	if !ok {
		return ""
	}
	return r.parser.Format(t)
}

// validName reports whether n consists of capitals, digits and inner underscores, begins with a
// capital, and lacks the UCX_ prefix.
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
