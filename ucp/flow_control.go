package ucp

import (
	"github.com/goucx/goucx/ucp/internal/pool"
	"github.com/goucx/goucx/ucp/internal/wire"
)

// budget limits the memory for unexpected messages. It is the flow control of eager
// messages:
//
// Above the limit the worker requests each sender to use rendezvous only, so that the
// data stays at the sender. Below half the limit it lifts that. Eager messages in
// flight are still received, so the limit may be exceeded.
type budget struct {
	limit     uint64 // bytes
	used      uint64 // bytes, in pool units
	peak      uint64
	exhausted bool // set when used exceeds limit, cleared when it is at most half of it
}

// allocBudgeted allocates memory for n bytes of an unexpected message and charges it to the
// budget.
func (w *thread) allocBudgeted(n int) pool.Chunk {
	c := w.pool.Get(n)
	b := &w.matching.budget
	b.used += w.pool.Size(c)
	if b.used > b.peak {
		w.count.Add(cntUnexpectedPeak, b.used-b.peak)
		b.peak = b.used
	}
	if b.used > b.limit && !b.exhausted {
		b.exhausted = true
		w.am.retainer.rndvOnly.Store(true)
		for _, wi := range w.ifaces {
			wi.rxChecks++ // from now on the rx connection of each message is checked
		}
	}
	return c
}

// freeBudgeted frees c. It ignores 0.
func (w *thread) freeBudgeted(c pool.Chunk) {
	if c == 0 {
		return
	}
	b := &w.matching.budget
	b.used -= w.pool.Size(c)
	w.pool.Put(c)
	if b.exhausted && b.used <= b.limit/2 {
		w.endRndvOnly()
	}
}

// requestRndvOnly requests the sender of rx to use rendezvous only. A sender that has not sent
// its worker address cannot be notified. The request is repeated after 32 further eager
// messages, after 64, and so on. If the first one was lost, the arrival of a repeated
// one makes the transport detect the loss long before its time-out.
func (rx *rxConn) requestRndvOnly() {
	w := rx.w
	if rx.peer == 0 {
		return
	}
	if rx.rndvOnlyAge == 0 || rx.rndvOnlyAge >= rndvOnlyResend && rx.rndvOnlyAge&(rx.rndvOnlyAge-1) == 0 {
		if !rx.reply(control{id: wire.FlowControl, hdr: 1}) {
			return
		}
		if rx.rndvOnlyAge == 0 {
			w.count.Inc(cntRndvOnly)
		}
	}
	rx.rndvOnlyAge++
}

// rndvOnlyResend is the number of eager messages after which the request is first repeated.
const rndvOnlyResend = 32

// endRndvOnly ends the flow control of all senders.
//
//go:noinline
func (w *thread) endRndvOnly() {
	w.matching.budget.exhausted = false
	w.am.retainer.rndvOnly.Store(false)
	for _, wi := range w.ifaces {
		wi.rxChecks--
	}
	for _, rx := range w.rxConns {
		if rx != nil && rx.rndvOnlyAge != 0 {
			rx.rndvOnlyAge = 0
			rx.reply(control{id: wire.FlowControl})
		}
	}
}
