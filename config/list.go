package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const wordAll = "all"

// List is an allow list or, if negated, a deny list of names with globs. The zero List matches
// nothing. Lists are immutable; copies share their items.
type List struct {
	items   []string
	negated bool
}

// ListOf parses a comma-separated list of names; what describes the names ("transports",
// "devices"). Names are globs of *, ? and [...], where [0-12] means the numbers from 0 to 12.
// "all" matches everything. A leading ^ negates the whole list.
//
// Source: UCX's allow lists.
func ListOf(what string) Parser[List] {
	return Parser[List]{
		Parse:   parseList,
		Format:  List.String,
		Allowed: fmt.Sprintf("a comma list of %s with * ? [..], a leading ^ to negate all of it, or all", what),
	}
}

func parseList(text string) (List, error) {
	text, negated := strings.CutPrefix(clean(text), "^")
	var l List
	for item := range strings.SplitSeq(text, ",") {
		item = clean(item)
		switch {
		case item == "":
			continue
		case strings.HasPrefix(item, "^"):
			return List{}, errors.New("^ negates the whole list and stands at its beginning only")
		case strings.ContainsFunc(item, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return List{}, errors.New("holds a control character")
		}
		l.items = append(l.items, item)
	}
	l.negated = negated
	if slices.Contains(l.items, wordAll) && (negated || len(l.items) > 1) {
		return List{}, errors.New("all must be the only item")
	}
	if negated && len(l.items) == 0 {
		return List{}, errors.New("^ without a name")
	}
	return l, nil
}

// Match reports whether the list permits name.
func (l List) Match(name string) bool {
	if l.All() {
		return true
	}
	return slices.ContainsFunc(l.items, func(p string) bool { return glob(p, name) }) != l.negated
}

// All reports whether the list is the word all.
func (l List) All() bool { return !l.negated && len(l.items) == 1 && l.items[0] == wordAll }

// Negated reports whether the list is a deny list.
func (l List) Negated() bool { return l.negated }

// Items returns a copy of the names and globs, without the ^.
func (l List) Items() []string { return slices.Clone(l.items) }

// Unmatched returns the items that match none of names, for "no such transport".
func (l List) Unmatched(names []string) []string {
	if l.All() {
		return nil
	}
	var none []string
	for _, p := range l.items {
		if !slices.ContainsFunc(names, func(n string) bool { return glob(p, n) }) {
			none = append(none, p)
		}
	}
	return none
}

// String returns the canonical spelling.
func (l List) String() string {
	s := strings.Join(l.items, ",")
	if l.negated {
		return "^" + s
	}
	return s
}
