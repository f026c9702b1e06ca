//go:build linux && cgo && ibverbs

package ibv

import "github.com/goucx/goucx/ucs/stats"

// counter is one of a device's counters: calls of C on the data path, by the object that they are on. A
// PostSendPoll counts at both of its objects.
type counter int

const (
	cntQPCalls counter = iota
	cntCQCalls
	cntSRQCalls
	numCounters
)

var counterNames = [numCounters]string{"qp_calls", "cq_calls", "srq_calls"}

// calls returns the counters: what was counted until now.
func (d *device) calls() [numCounters]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum := d.closedCalls
	for q := range d.qps {
		sum[cntQPCalls] += uint64(q.c.gate.calls)
	}
	for c := range d.cqs {
		sum[cntCQCalls] += uint64(c.c.gate.calls)
	}
	for s := range d.srqs {
		sum[cntSRQCalls] += uint64(s.c.gate.calls)
	}
	return sum
}

// Stats returns the counters: what was counted until now.
func (d *device) Stats() *stats.Group {
	set := stats.NewSet(counterNames[:])
	for i, n := range d.calls() {
		set.Add(i, n)
	}
	g := new(stats.Group)
	_ = g.Add("ibv", set) // the first prefix of a group is not in use
	return g
}
