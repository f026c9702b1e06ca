package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/goucx/goucx/ucs/stats/live"
)

// liveText prints programs as text.
func (t *tool) liveText(programs []liveProgram) {
	if len(programs) == 0 {
		t.line("No running program shows itself; start one with UCX_STATS_DEST=unix")
		return
	}
	for _, p := range programs {
		switch {
		case p.Page == nil:
			t.line("%d: %s", p.PID, sanitize(p.Error))
		case t.live == liveList:
			t.line("%d: %s: %s", p.Page.PID, commandText(p.Page), overview(p.Page))
		default:
			t.livePage(p.Page)
		}
	}
}

// sanitize replaces characters that a terminal would interpret.
func sanitize(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

func commandText(p *live.Page) string { return sanitize(strings.Join(p.Command, " ")) }

// overview returns a one-line summary of a program.
func overview(p *live.Page) string {
	pending, oldest, failed := 0, 0.0, 0
	var hung []string
	for _, w := range p.Workers {
		for _, r := range w.Summary.Requests {
			pending += r.Count
			oldest = max(oldest, r.OldestSeconds+w.AgeSeconds)
		}
		failed += w.Summary.Failed
		if !w.Responsive {
			hung = append(hung, fmt.Sprintf("worker %s is not progressed", sanitize(w.Name)))
		}
	}
	text := fmt.Sprintf("workers: %d, requests pending: %d", len(p.Workers), pending)
	if pending > 0 {
		text += ", the oldest for " + seconds(oldest)
	}
	if failed > 0 {
		text += fmt.Sprintf(", endpoints failed: %d", failed)
	}
	return strings.Join(append([]string{text}, hung...), "; ")
}

func seconds(s float64) string { return fmt.Sprintf("%.1f s", s) }

func (t *tool) livePage(p *live.Page) {
	t.line("")
	t.line("Program %d: %s", p.PID, commandText(p))
	t.line("    on %s, %s, GOMAXPROCS %d, %d goroutines, context open for %s",
		sanitize(p.Host), sanitize(p.GoVersion), p.MaxProcs, p.Goroutines, seconds(p.OpenSeconds))
	for _, s := range p.Settings {
		t.line("    %s=%s (%s)", sanitize(s.Name), sanitize(s.Value), sanitize(s.Origin))
	}
	for _, w := range p.Workers {
		t.liveWorker(&w)
	}
	t.line("")
}

func (t *tool) liveWorker(w *live.Worker) {
	s := &w.Summary
	t.line("")
	t.line("    Worker %s, %s: %s", sanitize(w.Name), sanitize(w.Mode), workerState(w))
	t.line("        endpoints: %d, %d connected, %d failed", s.Endpoints, s.Connected, s.Failed)
	for _, e := range s.Peers {
		t.line("            %s", endpointText(e))
	}
	t.line("        requests that have not ended: %d", pendingCount(s))
	for _, r := range s.Requests {
		t.line("            %s", requestsText(r))
	}
	t.line("        unread results: %d", s.Unread)
	t.line("        unexpected messages: %d, %d of %d bytes; allocated buffers: %d bytes", s.Unexpected, s.UnexpectedBytes, s.UnexpectedBudget, s.AllocatedBytes)
	t.line("        counters")
	for _, name := range counterNames(w.Counters) {
		t.line("            %s: %d", sanitize(name), w.Counters[name])
	}
}

// workerState describes what the worker is doing, as far as the page shows it.
func workerState(w *live.Worker) string {
	switch {
	case !w.Responsive && w.Armed:
		return fmt.Sprintf("waits for the program to progress it; its state %s ago", seconds(w.AgeSeconds))
	case !w.Responsive:
		return fmt.Sprintf("is not progressed, the program does something else or hangs; its state %s ago", seconds(w.AgeSeconds))
	case w.Armed:
		return "sleeps until something comes"
	default:
		return "progresses"
	}
}

func endpointText(e live.Endpoint) string {
	var text strings.Builder
	text.WriteString("worker " + sanitize(e.Peer) + ": " + sanitize(e.State))
	if e.Error != "" {
		text.WriteString(": " + sanitize(e.Error))
	}
	for _, l := range e.Lanes {
		text.WriteString(", " + sanitize(l.Name))
		if l.Pending > 0 {
			text.WriteString(fmt.Sprintf(" where %d wait for room", l.Pending))
		}
		if l.RndvOnly {
			text.WriteString(" (throttled)")
		}
		if l.Error != "" && l.Error != e.Error {
			text.WriteString(": " + sanitize(l.Error))
		}
	}
	return text.String()
}

func pendingCount(s *live.Summary) (n int) {
	for _, r := range s.Requests {
		n += r.Count
	}
	return n
}

func requestsText(r live.Requests) string {
	text := fmt.Sprintf("%d x %s, %s", r.Count, sanitize(r.Op), sanitize(r.State))
	if r.Peer != "" {
		text += ", worker " + sanitize(r.Peer)
	}
	if r.Lane != "" {
		text += ", " + sanitize(r.Lane)
	}
	text += fmt.Sprintf(", %d bytes, the oldest for %s", r.Bytes, seconds(r.OldestSeconds))
	if r.Tag != "" {
		text += " with tag " + sanitize(r.Tag)
	}
	return text
}

// counterNames returns the names of the nonzero counters, in order.
func counterNames(cs map[string]uint64) (names []string) {
	for n, v := range cs {
		if v != 0 {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}
