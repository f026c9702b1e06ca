package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs/platform"
	"github.com/goucx/goucx/wireup"
)

// why prints --why: what is refused, why, and what remains.
func (t *tool) why() (err error) {
	set, err := t.contextSettings()
	if err != nil {
		return err
	}
	forbidden := featureViews(restricted()) // before any device is open: descriptors may be scarce
	l, err := t.chooseLanes(set)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.local.close()) }()
	refused, below := refusals(l.refused), l.outranked()
	unused := unusedViews(set.Unused())
	over, paths := l.messagePaths(set)
	t.document["refused"] = map[string]any{"messages": paths, "peer": l.peer, "refused": refused, "outranked": below, "system": forbidden, "unused": unused}
	if t.json {
		return nil
	}
	t.line("")
	t.line("Refused transports and devices, peer: %s", l.peer)
	t.line("")
	t.reasons(refused)
	t.line("")
	t.line("Usable, but others are better")
	t.line("")
	t.reasons(below)
	t.line("")
	t.line("Chosen")
	t.line("")
	for _, c := range l.chosen() {
		t.line("    %s: %s", l.name(c.local), strings.Join(c.uses, " "))
	}
	if len(l.chosen()) == 0 {
		t.line("    none: this peer cannot be reached")
	}
	if len(paths) > 0 {
		t.line("")
		t.line("How messages get to this peer over %s, by the memory that they are sent from", over)
		t.line("")
		for _, p := range paths {
			t.line("    %s", p)
		}
	}
	t.line("")
	t.line("What the system forbids or limits")
	t.line("")
	t.services(forbidden)
	t.line("")
	t.line("Settings of UCX that goucx does not use")
	t.line("")
	for _, u := range unused {
		t.line("    %s=%s (%s): %s", u.Name, u.Value, u.Origin, u.Reason)
	}
	if len(unused) == 0 {
		t.line("    none")
	}
	t.line("")
	return err
}

// pathView is a ucp.MessagePath with JSON field names. Max is left out where there is no bound.
type pathView struct {
	Kind   string `json:"kind"`
	Memory string `json:"memory"`
	Min    uint64 `json:"min"`
	Max    uint64 `json:"max,omitempty"`
	Way    string `json:"way"`
	Reason string `json:"reason"`
}

func (p pathView) String() string {
	last := "(inf)"
	if p.Max != 0 {
		last = fmt.Sprint(p.Max)
	}
	return fmt.Sprintf("%-3s %-9s %-14s %s: %s", p.Kind, p.Memory, fmt.Sprintf("%d..%s", p.Min, last), p.Way, p.Reason)
}

// messagePaths returns how messages get to the peer, and transport and device by which.
func (l *lanes) messagePaths(set *config.Set) (over string, paths []pathView) {
	paths = []pathView{}
	c, ok := l.plan.Best(wireup.ForAM)
	if !ok {
		return "", paths
	}
	for _, p := range ucp.MessagePaths(set, l.local.ifaces[c.Local].Attr) {
		v := pathView(p)
		if v.Max == math.MaxUint64 {
			v.Max = 0
		}
		paths = append(paths, v)
	}
	return l.name(c.Local), paths
}

// unusedView is a config.Unused with JSON field names.
type unusedView struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
	Reason string `json:"reason"`
}

func unusedViews(us []config.Unused) []unusedView {
	out := make([]unusedView, len(us))
	for i, u := range us {
		out[i] = unusedView{u.Name, u.Text, u.Origin.String(), u.Reason}
		if u.Fault != "" {
			out[i].Reason = u.Fault + "; " + u.Reason
		}
	}
	return out
}

func (t *tool) reasons(rs []refusal) {
	for _, r := range rs {
		t.line("    %s", r)
	}
	if len(rs) == 0 {
		t.line("    none")
	}
}

// restricted lists the system services that are refused, or only partly available.
func restricted() []platform.Feature {
	return slices.DeleteFunc(platform.Probe().Features, func(f platform.Feature) bool { return f.Available && f.Reason == "" })
}

// featureView is a platform.Feature with JSON field names.
type featureView struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
}

func featureViews(fs []platform.Feature) []featureView {
	out := make([]featureView, len(fs))
	for i, f := range fs {
		out[i] = featureView(f)
	}
	return out
}

func (t *tool) services(fs []featureView) {
	for _, f := range fs {
		switch {
		case !f.Available:
			t.line("    %s: no: %s", f.Name, f.Reason)
		case f.Reason != "":
			t.line("    %s: yes, but %s", f.Name, f.Reason)
		default:
			t.line("    %s: yes", f.Name)
		}
	}
	if len(fs) == 0 {
		t.line("    nothing")
	}
}
