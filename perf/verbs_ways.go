package perf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucp/sharing"
)

// Ways says how many threads of verbs_rate share one object of each kind; 0 and 1: each thread has its
// own. Buf is the message's memory, CTX the device context; the others are verbs objects. JSON has the
// text of String.
//
// Source: "Scalable Communication Endpoints for MPI+Threads Applications", section V: x-way sharing.
type Ways struct{ Buf, CTX, PD, MR, CQ, QP int }

// fields lists the names of the fields with their places.
func (w *Ways) fields() []way {
	return []way{{"buf", &w.Buf}, {"ctx", &w.CTX}, {"pd", &w.PD}, {"mr", &w.MR}, {"cq", &w.CQ}, {"qp", &w.QP}}
}

type way struct {
	name string
	n    *int
}

// ParseWays parses a list as String returns it, such as "ctx=16,cq=4".
func ParseWays(text string) (w Ways, err error) {
	fields := w.fields()
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
next:
	for item := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(item, "=")
		for _, f := range fields {
			if name != f.name {
				continue
			}
			if *f.n, err = strconv.Atoi(number); err != nil || *f.n < 1 || *f.n > MaxThreads {
				return Ways{}, fmt.Errorf("%q: want %s=X with X of 1-%d threads", item, name, MaxThreads)
			}
			if *f.n == 1 {
				*f.n = 0 // one form of what is not shared
			}
			continue next
		}
		if n := config.Nearest(name, names); n != "" {
			return Ways{}, fmt.Errorf("unknown object %q; did you mean %s?", name, n)
		}
		return Ways{}, fmt.Errorf("unknown object %q; known are %s", name, strings.Join(names, " "))
	}
	return w, nil
}

// String returns a list of the objects that are shared.
func (w Ways) String() string {
	var items []string
	for _, f := range w.fields() {
		if *f.n > 1 {
			items = append(items, fmt.Sprintf("%s=%d", f.name, *f.n))
		}
	}
	return strings.Join(items, ",")
}

// MarshalText implements encoding.TextMarshaler.
func (w Ways) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Ways) UnmarshalText(text []byte) (err error) {
	*w, err = ParseWays(string(text))
	return err
}

// complete returns w with the sharing that follows. Objects that are shared are in one object of the
// kind above, which at least as many threads share: a QP's CQ and PD, an MR's PD. What is shared at
// all is in one context, unless CTX is set.
func (w Ways) complete(threads int) Ways {
	for _, f := range w.fields() {
		*f.n = max(*f.n, 1)
	}
	w.CQ, w.PD = max(w.CQ, w.QP), max(w.PD, w.MR, w.QP)
	if w.CTX == 1 && max(w.CQ, w.PD) > 1 {
		w.CTX = threads
	}
	return w
}

// check returns an error if an object would be shared across two objects of the kind above.
func (w Ways) check(threads int) error {
	var errs []error
	w = w.complete(threads)
	within := func(inner string, x int, outer string, y int) {
		if y < threads && y%x != 0 {
			errs = append(errs, fmt.Errorf("%s=%d is no multiple of %s=%d: threads that share a %s share its %s", outer, y, inner, x, strings.ToUpper(inner), strings.ToUpper(outer)))
		}
	}
	within("qp", w.QP, "cq", w.CQ)
	within("qp", w.QP, "pd", w.PD)
	within("mr", w.MR, "pd", w.PD)
	within("cq", w.CQ, "ctx", w.CTX)
	within("pd", w.PD, "ctx", w.CTX)
	return errors.Join(errs...)
}

// policy returns the policy of x-way sharing. A queue pair of one thread is in a thread domain of
// level 1.
func (w Ways) policy() sharing.Policy {
	return sharing.Policy{Name: "x-way", Assign: func(in sharing.Input) (*sharing.Plan, error) {
		w := w.complete(in.Threads)
		p := &sharing.Plan{Reasons: []string{"shared by threads: " + w.String()}}
		for i := range in.Threads {
			begins := func(x int) bool { return i%x == 0 } // a group of x threads
			if begins(w.CTX) {
				p.Contexts++
			}
			if begins(w.PD) {
				p.PDs = append(p.PDs, sharing.PD{Context: p.Contexts})
			}
			td := 0
			if w.QP == 1 {
				p.TDs = append(p.TDs, sharing.TD{Context: p.Contexts, Level: 1})
				td = len(p.TDs)
			}
			if begins(w.CQ) {
				q := sharing.CQ{Context: p.Contexts}
				if w.CQ == 1 {
					q.TD = td
				}
				p.CQs = append(p.CQs, q)
			}
			if begins(w.QP) {
				p.QPs = append(p.QPs, sharing.QP{Context: p.Contexts, PD: len(p.PDs), TD: td, CQ: len(p.CQs)})
			}
			p.Threads = append(p.Threads, sharing.Thread{QPs: []int{len(p.QPs)}})
		}
		return p, nil
	}}
}
