package sharing_test

import (
	"fmt"

	"github.com/goucx/goucx/ucp/sharing"
)

// A program's own policy: two threads share a context, and each has a thread domain.
func ExamplePolicy() {
	pairs := sharing.Policy{Name: "pairs", Assign: func(in sharing.Input) (*sharing.Plan, error) {
		p := &sharing.Plan{Contexts: (in.Threads + 1) / 2, Reasons: []string{"two threads share a context"}}
		for i := range in.Threads {
			context, number := i/2+1, i+1
			p.TDs = append(p.TDs, sharing.TD{Context: context, Level: 1})
			p.CQs = append(p.CQs, sharing.CQ{Context: context, TD: number})
			p.QPs = append(p.QPs, sharing.QP{Context: context, TD: number, CQ: number})
			p.Threads = append(p.Threads, sharing.Thread{QPs: []int{number}})
		}
		return p, nil
	}}
	plan, err := pairs.Plan(sharing.Input{Threads: 5, Device: sharing.MLX5()})
	fmt.Println(plan, err)
	q := plan.QP(plan.Threads[4].QPs[0])
	fmt.Println("thread 5: context", q.Context, "thread domain", q.TD, "level", plan.TD(q.TD).Level)
	// Output:
	// pairs: 5 threads, 3 contexts, 5 thread domains, 5 queue pairs, 5 completion queues <nil>
	// thread 5: context 3 thread domain 5 level 1
}
