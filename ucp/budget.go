package ucp

// budget bounds the memory for messages that nobody waits for. Above it every
// sender who sends data along is told to announce it instead, so that it stays
// with him; below half of it all are told that it is over. What is on its way
// meanwhile is still taken in.
type budget struct {
	limit uint64 // bytes
	held  uint64 // bytes, as the pool lends them
	peak  uint64
	spent bool // since held was above limit, until it is below half of it
}

// hold lends memory for n bytes of a message that nobody waits for.
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
		w.watchSources(1) // from now on we look who sends
	}
	return c
}

// unhold takes c back; 0 is nothing.
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

// watchSources has every port look at the source of each message, or no more.
func (w *Worker) watchSources(by int) {
	for _, p := range w.ports {
		p.careful += by
	}
}

// slowDown has the sender of s announce what he sends from now on. Who never
// said who he is cannot be told. He is told again after 32 messages that come all
// the same, after 64, and so on: where the word was lost, a later one that arrives
// makes the transport notice, long before its time-out would.
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

// tellAgain is the least number of messages after which a sender is told again.
const tellAgain = 32

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
