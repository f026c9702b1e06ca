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
// said who he is cannot be told.
func (w *Worker) slowDown(s *source) {
	if !s.throttled && s.peer != 0 {
		s.throttled = w.reply(s, control{id: amThrottle, hdr: 1})
		w.count.Inc(cntThrottled)
	}
}

//go:noinline
func (w *Worker) speedUp() {
	w.budget.spent = false
	w.am.keep.pressed.Store(false)
	w.watchSources(-1)
	for _, s := range w.sources {
		if s != nil && s.throttled {
			s.throttled = false
			w.reply(s, control{id: amThrottle})
		}
	}
}
