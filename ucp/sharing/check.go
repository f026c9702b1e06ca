package sharing

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// Check returns an error that joins all faults of a plan for in: numbers without an entry, objects of
// different contexts, a level other than 1 and 2, a thread domain whose objects several threads use, a
// spare that is used.
// Each wraps ucs.ErrInvalid. Unused objects are no fault.
func (p *Plan) Check(in Input) error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("the plan is invalid: "+format+": %w", append(args, ucs.ErrInvalid)...))
	}
	exists := func(of string, number, made int, kind string) bool {
		if number < 1 || number > made {
			fault("%s uses %s %d, and %d are made", of, kind, number, made)
			return false
		}
		return true
	}
	if in.Device.NoTDs && len(p.TDs) > 0 {
		fault("it has %d thread domains, and the device has none", len(p.TDs))
	}
	for i, d := range p.PDs {
		exists(fmt.Sprintf("protection domain %d", i+1), d.Context, p.Contexts, "context")
	}
	for i, t := range p.TDs {
		of := fmt.Sprintf("thread domain %d", i+1)
		exists(of, t.Context, p.Contexts, "context")
		if t.Level != 1 && t.Level != 2 {
			fault("%s has the sharing level %d: want 1 or 2", of, t.Level)
		}
	}
	// inTD checks that the thread domain of an object exists in the object's context.
	inTD := func(of string, context, td int) {
		if td != 0 && exists(of, td, len(p.TDs), "thread domain") && p.TD(td).Context != context {
			fault("%s is in context %d, and its thread domain %d in context %d", of, context, td, p.TD(td).Context)
		}
	}
	for i, c := range p.CQs {
		of := fmt.Sprintf("completion queue %d", i+1)
		exists(of, c.Context, p.Contexts, "context")
		inTD(of, c.Context, c.TD)
	}
	for i, q := range p.QPs {
		of := fmt.Sprintf("queue pair %d", i+1)
		exists(of, q.Context, p.Contexts, "context")
		inTD(of, q.Context, q.TD)
		if q.PD != 0 && exists(of, q.PD, len(p.PDs), "protection domain") && p.PDs[q.PD-1].Context != q.Context {
			fault("%s is in context %d, and its protection domain %d in context %d", of, q.Context, q.PD, p.PDs[q.PD-1].Context)
		}
		if exists(of, q.CQ, len(p.CQs), "completion queue") && p.CQ(q.CQ).Context != q.Context {
			fault("%s is in context %d, and its completion queue %d in context %d", of, q.Context, q.CQ, p.CQ(q.CQ).Context)
		}
	}
	if len(p.Threads) != in.Threads {
		fault("it has %d threads: want %d", len(p.Threads), in.Threads)
	}
	if len(errs) > 0 { // below, numbers are indexes
		return errors.Join(errs...)
	}

	user := make([]int, len(p.TDs)+1) // the thread that uses the thread domain, counted from 1
	uses := func(thread, td int, by string) {
		if td == 0 || user[td] == thread {
			return
		}
		if user[td] != 0 {
			fault("threads %d and %d both use thread domain %d, by %s", user[td], thread, td, by)
		}
		user[td] = thread
	}
	for i, t := range p.Threads {
		thread := i + 1
		of := fmt.Sprintf("thread %d", thread)
		if want := max(1, in.QPs); len(t.QPs) != want {
			fault("%s has the queue pairs %v: want %d of them", of, t.QPs, want)
		}
		seen := make(map[int]bool, len(t.QPs))
		for _, n := range t.QPs {
			if !exists(of, n, len(p.QPs), "queue pair") {
				continue
			}
			if seen[n] {
				fault("%s has queue pair %d twice", of, n)
			}
			seen[n] = true
			q := p.QP(n)
			uses(thread, q.TD, fmt.Sprintf("queue pair %d", n))
			uses(thread, p.CQ(q.CQ).TD, fmt.Sprintf("completion queue %d", q.CQ))
		}
	}
	for i, t := range p.Threads {
		for _, n := range t.Spares {
			if exists(fmt.Sprintf("thread %d", i+1), n, len(p.TDs), "spare thread domain") && user[n] != 0 {
				fault("thread domain %d is a spare of thread %d, and thread %d uses it", n, i+1, user[n])
			}
		}
	}
	return errors.Join(errs...)
}
