package sharing

import "fmt"

// Plan is what is made for the threads of a process, and which part of it each thread uses.
//
// Objects are numbered from 1 in the order of their lists, in which they are made; contexts from 1
// to Contexts. Number 0 is none. What no thread uses is spare: it is made, and left unused.
type Plan struct {
	// Policy is the name of the policy.
	Policy string
	// Fallback is the name of the policy whose plan this is, because the device lacks what Policy
	// needs; "": the plan is that of Policy.
	Fallback string
	// Contexts is the number of device contexts.
	Contexts int
	// PDs are the protection domains beside the one that each context has. Only experiments have
	// some: a policy's threads share memory.
	PDs []PD
	// TDs, CQs and QPs are the objects that are made in the contexts.
	TDs []TD
	CQs []CQ
	QPs []QP
	// Threads has an entry for each thread.
	Threads []Thread
	// Reasons are short texts that explain the plan.
	Reasons []string
}

// PD is a further protection domain of a plan.
type PD struct {
	// Context is the number of its context.
	Context int
}

// TD is a thread domain of a plan.
type TD struct {
	// Context is the number of its context.
	Context int
	// Level is the permitted sharing of its UAR page: 1 none, 2 with one other thread domain. It is
	// verbs.TDConfig.Sharing.
	Level int
}

// CQ is a completion queue of a plan.
type CQ struct {
	// Context is the number of its context.
	Context int
	// TD is the number of its thread domain: one thread uses the queue, without a lock. 0: none.
	TD int
}

// QP is a queue pair of a plan.
type QP struct {
	// Context is the number of its context.
	Context int
	// TD is the number of its thread domain: one thread uses the queue pair. 0: none.
	TD int
	// CQ is the number of the completion queue of its sends and receives.
	CQ int
	// PD is the number of its protection domain. 0: that of the context.
	PD int
}

// Thread is what a thread uses. The queue pairs lead to the rest.
type Thread struct {
	// QPs are the numbers of its queue pairs, Input.QPs of them.
	QPs []int
	// Spares are the numbers of thread domains that are made for it and that it does not use. Spare
	// queue pairs may be in them.
	Spares []int
}

// TD returns the thread domain with a number, the zero value for 0.
func (p *Plan) TD(number int) TD {
	if number == 0 {
		return TD{}
	}
	return p.TDs[number-1]
}

// CQ returns the completion queue with a number.
func (p *Plan) CQ(number int) CQ { return p.CQs[number-1] }

// QP returns the queue pair with a number.
func (p *Plan) QP(number int) QP { return p.QPs[number-1] }

// SharesQPs reports whether two threads use one queue pair. Over shared memory this is all that a
// plan decides: rings for each thread, or those of the worker behind its lock.
func (p *Plan) SharesQPs() bool {
	used := make([]bool, len(p.QPs)+1)
	for _, t := range p.Threads {
		for _, q := range t.QPs {
			if used[q] {
				return true
			}
			used[q] = true
		}
	}
	return false
}

// String returns the number of each kind of object.
func (p *Plan) String() string {
	name := p.Policy
	if p.Fallback != "" {
		name += " (as " + p.Fallback + ")"
	}
	return fmt.Sprintf("%s: %d threads, %d contexts, %d thread domains, %d queue pairs, %d completion queues",
		name, len(p.Threads), p.Contexts, len(p.TDs), len(p.QPs), len(p.CQs))
}
