package perf

import (
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/goucx/goucx/ucs"
)

// team is one side of a run: a kernel, a clock and a link for each thread.
type team struct {
	g       Group
	p       *Params
	test    Test
	kernels []kernel
	clocks  []*stamps
	links   []*link
	sink    func(Report)
	// interrupt is Config.Interrupt.
	interrupt <-chan struct{}
	connected func(transports string) // Config.Connected
}

// assemble sets up the kernels of this side. Both sides set up their threads in the same order, so
// that corresponding threads connect.
func assemble(c *Config, g Group, p *Params, t Test) (*team, error) {
	m := &team{g: g, p: p, test: t, sink: c.Rows, interrupt: c.Interrupt, connected: c.Connected}
	if p.threads() == 1 {
		l := newLink(c, g)
		k, err := open(c, l, p, t)
		m.add(k, newStamps(c, p, t), l)
		return m, err
	}
	own := *c
	own.Rows = m.rows()
	if t.Op == OpSharedPut {
		return m, m.assembleRate(&own)
	}
	x, err := openContext(c, t)
	if err != nil {
		return nil, err
	}
	for i := range p.threads() {
		l := newLink(c, g)
		k, err := newUCPSide(x, l, p, t)
		if err != nil {
			return nil, errors.Join(err, x.Close())
		}
		st := newStamps(&own, p, t)
		st.thread = i
		m.add(k, st, l)
	}
	return m, nil
}

// assembleRate sets up the threads of verbs_rate.
func (m *team) assembleRate(c *Config) error {
	links := make([]*link, m.p.threads())
	for i := range links {
		links[i] = newLink(c, m.g)
	}
	r, err := openRate(c, links, m.p, m.test)
	if err != nil {
		return err
	}
	for i, k := range r.threads {
		st := newStamps(c, m.p, m.test)
		st.thread = i
		m.add(k, st, links[i])
	}
	return nil
}

func (m *team) add(k kernel, st *stamps, l *link) {
	m.kernels, m.clocks, m.links = append(m.kernels, k), append(m.clocks, st), append(m.links, l)
}

// rows returns a sink for the rows of all threads, one at a time. It withholds the threads' last
// rows, which are reported as one.
func (m *team) rows() func(Report) {
	if m.sink == nil {
		return nil
	}
	var mu sync.Mutex
	return func(r Report) {
		if !r.Final {
			mu.Lock()
			defer mu.Unlock()
			m.sink(r)
		}
	}
}

// phase executes this side's part of n messages, on each thread.
func (m *team) phase(n int64, measure bool) error {
	stop := m.watch()
	defer stop()
	if len(m.kernels) == 1 {
		return phase(m.kernels[0], m.g, n, measure, m.clocks[0])
	}
	defer spread(len(m.kernels))()
	errs := make([]error, len(m.kernels))
	var all sync.WaitGroup
	for i, k := range m.kernels {
		all.Go(func() {
			if errs[i] = phase(k, m.g, n, measure, m.clocks[i]); errs[i] != nil {
				m.fail(errs[i])
			}
		})
	}
	all.Wait()
	return first(errs)
}

// first returns the first error that is not a consequence of another thread's.
func first(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, errOtherThread) {
			return err
		}
	}
	return errors.Join(errs...)
}

// spread makes sure that each thread has its own P of the Go runtime, however few
// processors the process has.
// Polling threads then share processors by the system's time slices, as UCX's do, and not by the
// runtime's scheduling.
func spread(threads int) (back func()) {
	old := runtime.GOMAXPROCS(0)
	if old >= threads {
		return func() {}
	}
	runtime.GOMAXPROCS(threads)
	return func() { runtime.GOMAXPROCS(old) }
}

// progress makes progress on all kernels; no thread may be running.
func (m *team) progress() {
	for _, k := range m.kernels {
		k.progress()
	}
}

// abandon cancels the messages in flight.
func (m *team) abandon() {
	for _, k := range m.kernels {
		if s, ok := k.(sender); ok {
			s.abandon()
		}
	}
}

// close releases all resources.
func (m *team) close() error { return m.kernels[0].close() }

// result returns the result of the measuring side.
func (m *team) result() *Result {
	first := m.clocks[0]
	params := m.p.Effective(m.test)
	if k, ok := m.kernels[0].(interface{ layout() Layout }); ok {
		params.Layout = k.layout()
	}
	r := &Result{
		Params: params, Test: m.test, Transports: m.kernels[0].transports(),
		Last: first.final, StampEvery: int(first.every), Window: m.p.window(m.test),
	}
	if k, ok := m.kernels[0].(*rateThread); ok {
		r.PerMessage, r.Resources = k.figures()
	}
	if len(m.kernels) == 1 {
		r.Quantiles = first.quantiles()
		return r
	}
	r.Last = sum(m.clocks)
	for _, st := range m.clocks[1:] {
		first.hist.merge(&st.hist)
	}
	r.Quantiles = first.quantiles()
	if m.sink != nil {
		m.sink(r.Last)
	}
	return r
}

// interrupted returns the result of what ran before an interruption, here or on the other side, and
// its error. The result is nil if nothing ran; of several threads it is that of those which took a
// stamp. Without an interruption it returns err.
func (m *team) interrupted(err error) (*Result, error) {
	select {
	case <-m.interrupt:
		err = ErrInterrupted
	default:
		if there := m.g.Err(); interruptedThere(there) {
			err = there
		} else if !interruptedThere(err) {
			return nil, err
		}
	}
	m.clocks = slices.DeleteFunc(m.clocks, func(st *stamps) bool { return st.n == 0 })
	if len(m.clocks) == 0 {
		return nil, err
	}
	for _, st := range m.clocks {
		st.end(int64(st.n) * st.every)
	}
	return m.result(), err
}

// interruptedThere reports whether err is an interruption that the other side reports.
func interruptedThere(err error) bool {
	var remote interface{ Interrupted() bool }
	return errors.As(err, &remote) && remote.Interrupted()
}

// sum combines the last rows of several threads into one. Its rates are those of all messages from
// the first thread's start to the last one's end: threads that share processors run one after the
// other, so that the sum of their own rates is that of no time.
//
// Source: aggregate_thread_results of UCX 1.13's libperf_thread.c, which adds the threads' rates.
func sum(clocks []*stamps) Report {
	r := Report{Final: true, Sum: true, Iterations: clocks[0].final.Iterations}
	start, end, messages := clocks[0].start, ucs.Time(0), 0.0
	for _, st := range clocks {
		start = min(start, st.start)
		end = max(end, st.start.Add(st.final.Elapsed))
		r.LatencyTotal += st.final.LatencyTotal / float64(len(clocks))
		messages += st.final.MessagesTotal * st.final.Elapsed.Seconds()
	}
	r.Elapsed = end.Sub(start)
	r.MessagesTotal = messages / r.Elapsed.Seconds()
	r.BytesTotal = r.MessagesTotal * float64(clocks[0].bytes)
	return r
}
