package stats

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/goucx/goucx/ucs"
)

// Group holds the sets of a worker, each under its own prefix. Output is in the order in
// which the sets were added.
//
// Concurrency: all methods may be called from any goroutine.
type Group struct {
	mu   sync.Mutex // guards sets
	sets []member
}

type member struct {
	prefix string
	set    *Set
}

// Add adds a set under a prefix, such as "shm" or "ep.3".
//
// Errors: ucs.ErrInvalid if the prefix is empty or in use.
func (g *Group) Add(prefix string, s *Set) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if prefix == "" || g.index(prefix) >= 0 {
		return fmt.Errorf("counters under prefix %q, which is empty or in use: %w", prefix, ucs.ErrInvalid)
	}
	g.sets = append(g.sets, member{prefix, s})
	return nil
}

// Remove removes the set under a prefix, if there is one.
func (g *Group) Remove(prefix string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := g.index(prefix); i >= 0 {
		g.sets = slices.Delete(g.sets, i, i+1)
	}
}

func (g *Group) index(prefix string) int {
	return slices.IndexFunc(g.sets, func(m member) bool { return m.prefix == prefix })
}

// members returns a copy of the list, so that slow writers do not hold the lock.
func (g *Group) members() []member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.sets)
}

// Snapshot reads all counters. Their names are "prefix.name".
func (g *Group) Snapshot() []Counter {
	var cs []Counter
	for _, m := range g.members() {
		cs = m.set.appendTo(cs, m.prefix+".")
	}
	return cs
}

// WriteText writes a line per counter: its name, blanks and its value.
func (g *Group) WriteText(w io.Writer) error {
	cs := g.Snapshot()
	width := 0
	for _, c := range cs {
		width = max(width, len(c.Name))
	}
	var b bytes.Buffer
	for _, c := range cs {
		fmt.Fprintf(&b, "%-*s  %d\n", width, c.Name, c.Value)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// MarshalJSON returns a nested object: {"prefix": {"name": value}}.
func (g *Group) MarshalJSON() ([]byte, error) {
	all := map[string]map[string]uint64{}
	for _, m := range g.members() {
		values := map[string]uint64{}
		for _, c := range m.set.Snapshot() {
			values[c.Name] = c.Value
		}
		all[m.prefix] = values
	}
	return json.Marshal(all)
}
