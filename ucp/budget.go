package ucp

// budget limits the memory for unexpected messages. It is the flow control of eager
// messages:
//
// Above the limit the worker requests each sender to use rendezvous only, so that the
// data stays at the sender. Below half the limit it lifts that. Eager messages in
// flight are still received, so the limit may be exceeded.
type budget struct {
	limit uint64 // bytes
	held  uint64 // bytes, in pool units
	peak  uint64
	spent bool // set when held exceeds limit, cleared when it is at most half of it
}

// hold allocates memory for n bytes of an unexpected message and charges it to the
// budget.
func (w *Worker) hold(n int) chunk {
	c := w.pool.get(n)
	b := &w.budget
	b.held += w.pool.size(c)
	if b.held > b.peak {
		w.count.Add(cntUnexpectedPeak, b.held-b.peak)
		b.peak = b.held
	}
	if b.held > b.limit && !b.spent {
		b.spent = true
		w.am.keep.pressed.Store(true)
		w.watchSources(1) // from now on the rx connection of each message is checked
	}
	return c
}

// unhold frees c. It ignores 0.
func (w *Worker) unhold(c chunk) {
	if c == 0 {
		return
	}
	b := &w.budget
	b.held -= w.pool.size(c)
	w.pool.put(c)
	if b.spent && b.held <= b.limit/2 {
		w.speedUp()
	}
}

// watchSources adds by to every port's number of reasons to check the rx connection of
// each message.
func (w *Worker) watchSources(by int) {
	for _, p := range w.ports {
		p.careful += by
	}
}

// slowDown requests the sender of s to use rendezvous only. A sender that has not sent
// its worker address cannot be notified. The request is repeated after 32 further eager
// messages, after 64, and so on. If the first one was lost, the arrival of a repeated
// one makes the transport detect the loss long before its time-out.
func (w *Worker) slowDown(s *source) {
	if s.peer == 0 {
		return
	}
	if s.told == 0 || s.told >= tellAgain && s.told&(s.told-1) == 0 {
		if !w.reply(s, control{id: amThrottle, hdr: 1}) {
			return
		}
		if s.told == 0 {
			w.count.Inc(cntThrottled)
		}
	}
	s.told++
}

// tellAgain is the number of eager messages after which the request is first repeated.
const tellAgain = 32

// speedUp ends the flow control of all senders.
//
//go:noinline
func (w *Worker) speedUp() {
	w.budget.spent = false
	w.am.keep.pressed.Store(false)
	w.watchSources(-1)
	for _, s := range w.sources {
		if s != nil && s.told != 0 {
			s.told = 0
			w.reply(s, control{id: amThrottle})
		}
	}
}
