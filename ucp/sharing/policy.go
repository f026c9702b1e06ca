package sharing

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// Input is what a policy plans for.
type Input struct {
	// Threads is the number of threads, at least 1.
	Threads int
	// QPs is the number of queue pairs that each thread uses, for example one for each neighbor.
	// 0: 1.
	QPs int
	// Device are the limits of the device.
	Device Device
}

// Device are the limits of a device. The zero value has thread domains and no limit.
type Device struct {
	// NoTDs: the device has no thread domains.
	NoTDs bool
	// IndependentTDs is the most thread domains of level 1 in a context. 0: no limit.
	IndependentTDs int
	// TDPages is the most UAR pages of the thread domains of a context: one for each of level 1,
	// and one for two of level 2. 0: no limit.
	TDPages int
	// Pages is the number of UAR pages of the device. 0: no limit.
	Pages int
	// ContextPages is the number of UAR pages of a context without thread domains.
	ContextPages int
}

// MLX5 returns the limits of a ConnectX-4 under its driver's default settings.
//
// Source: the paper, sections III and V-B and appendix B.
func MLX5() Device {
	return Device{IndependentTDs: 256, TDPages: 512, Pages: 8192, ContextPages: 8}
}

// Policy assigns resources to threads. The zero value is no policy. A program may make its own.
type Policy struct {
	// Name identifies the policy in messages.
	Name string
	// Assign returns the plan for in, whose QPs is at least 1. It sets neither Policy nor the
	// capacity that Plan checks. The plan for n threads must begin with that for n-1 threads: a
	// worker adds threads one by one. An error is the policy's own refusal.
	Assign func(in Input) (*Plan, error)
}

// Plan returns the plan for in. It is that of Assign, and Check has accepted it.
//
// Errors: ucs.ErrInvalid for an invalid input and for a plan that Check refuses;
// ucs.ErrNoResource if the plan needs more than the device has.
func (p Policy) Plan(in Input) (*Plan, error) {
	fail := func(err error) (*Plan, error) { return nil, fmt.Errorf("policy %s: %w", p.Name, err) }
	if in.QPs == 0 {
		in.QPs = 1
	}
	switch {
	case p.Assign == nil:
		return fail(fmt.Errorf("it has no function Assign: %w", ucs.ErrInvalid))
	case in.Threads < 1 || in.QPs < 1:
		return fail(fmt.Errorf("a plan for %d threads with %d queue pairs each: want at least 1: %w", in.Threads, in.QPs, ucs.ErrInvalid))
	}
	plan, err := p.Assign(in)
	if err != nil {
		return fail(err)
	}
	if plan == nil {
		return fail(fmt.Errorf("its function Assign returned no plan: %w", ucs.ErrInvalid))
	}
	plan.Policy = p.Name
	if err := plan.Check(in); err != nil {
		return fail(err)
	}
	if err := plan.fits(in); err != nil {
		return fail(err)
	}
	return plan, nil
}

// fits returns ErrNoResource if the plan needs more than the device has, with both numbers.
func (p *Plan) fits(in Input) error {
	d := in.Device
	shared := make([]int, p.Contexts+1) // thread domains by context, of level 2
	independent := make([]int, p.Contexts+1)
	for _, t := range p.TDs {
		if t.Level == 1 {
			independent[t.Context]++
		} else {
			shared[t.Context]++
		}
	}
	lacks := func(need int, what string, has int) error {
		if has == 0 || need <= has {
			return nil
		}
		return fmt.Errorf("%d threads need %d %s, and there are %d: %w", in.Threads, need, what, has, ucs.ErrNoResource)
	}
	pages := p.Contexts * d.ContextPages
	for c := range independent {
		dynamic := independent[c] + (shared[c]+1)/2
		pages += dynamic
		if err := lacks(independent[c], "thread domains of level 1 in a context", d.IndependentTDs); err != nil {
			return err
		}
		if err := lacks(dynamic, "UAR pages of thread domains in a context", d.TDPages); err != nil {
			return err
		}
	}
	return lacks(pages, "UAR pages of the device", d.Pages)
}
