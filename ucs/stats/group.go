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

// Group is the sets of one worker, each under a prefix of its own; what it
// shows keeps the order in which they came.
//
// Concurrency: all methods from any goroutine.
type Group struct {
	mu   sync.Mutex // guards sets
	sets []member
}

type member struct {
	prefix string
	set    *Set
}

// Add puts a set under prefix ("shm", "ep.3").
//
// Errors: ucs.ErrInvalid for an empty prefix or one that is in use.
func (g *Group) Add(prefix string, s *Set) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if prefix == "" || g.index(prefix) >= 0 {
		return fmt.Errorf("counters under prefix %q, which is empty or in use: %w", prefix, ucs.ErrInvalid)
	}
	g.sets = append(g.sets, member{prefix, s})
	return nil
}

// Remove takes the set under prefix away; one that is not there is no error.
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

// members is a copy, so that slow writers do not hold the lock.
func (g *Group) members() []member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.sets)
}

// Snapshot reads all counters, named "prefix.name".
func (g *Group) Snapshot() []Counter {
	var cs []Counter
	for _, m := range g.members() {
		cs = m.set.appendTo(cs, m.prefix+".")
	}
	return cs
}

// WriteText writes a line per counter: its name, blanks, its value.
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

// MarshalJSON gives an object of objects: {"prefix": {"name": value}}.
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
