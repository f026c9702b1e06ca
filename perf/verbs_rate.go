package perf

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/ucp/sharing/onverbs"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
)

// The message-rate benchmark of "Scalable Communication Endpoints for MPI+Threads Applications",
// section IV: threads write to memory through queue pairs, and share verbs objects by a plan. Each
// thread posts lists of work requests as long as its window has room, and requests a completion for
// every few. Each queue pair is connected to itself, so a thread drives both of its ends.
//
// A shared queue pair has room for the windows of all its threads, so that they need not count its
// free places. Completions in a shared CQ name their thread: the one that polls them adds to the
// counter of the one that posted.

// rate holds the objects of all threads.
type rate struct {
	set     *onverbs.Set
	regions map[region]verbs.MR
	threads []*rateThread
	name    string // the device

	p      Params // with all defaults
	memory []byte // the messages of all threads, and then where they are written
	stride int    // distance of two threads' messages
}

// region identifies a memory region: that of a group of threads in a protection domain.
type region struct {
	pd    verbs.PD
	group int
}

// rateThread is a thread. All but done is its own.
type rateThread struct {
	*rate
	link       *link
	number     int
	qp         verbs.QP
	cq         verbs.CQ
	list       []verbs.SendWR
	wcs        []verbs.WC
	depth      int64 // maximum number of outstanding work requests
	unsignaled int64 // number of work requests per requested completion
	inline     bool

	left   int64 // work requests of the phase that are not posted
	posted int64
	since  int64 // number of work requests posted since the last one with a completion
	spins  uint

	_ ucs.Pad
	// done counts the work requests that have completed. Threads that share the CQ add to it.
	done atomic.Int64
	_    ucs.Pad
}

// lineStride is the distance of the threads' messages: two cache lines.
const lineStride = 128

// openRate creates the objects of the plan, and connects and fills what threads use. links has a link
// for each thread.
func openRate(c *Config, links []*link, p *Params, t Test) (r *rate, err error) {
	own := *c
	if c.Adapter != nil {
		own.Verbs = c.Adapter(!p.without("blueflame"))
	}
	q := p.rateParams(t)
	policy := q.Ways.policy()
	if q.Sharing != "" {
		if policy, err = sharing.Lookup(q.Sharing); err != nil {
			return nil, err
		}
	}
	plan, err := policy.Plan(sharing.Input{Threads: len(links)})
	if err != nil {
		return nil, err
	}
	users := make([]int, len(plan.QPs)) // threads of each queue pair
	most := 0
	for _, th := range plan.Threads {
		n := th.QPs[0] - 1
		users[n]++
		most = max(most, users[n])
	}
	q.Window = q.window(t)
	stride := (int(q.Size()) + lineStride - 1) &^ (lineStride - 1)
	r = &rate{p: q, regions: map[region]verbs.MR{}, memory: make([]byte, 2*stride*len(links)), stride: stride}
	r.set, err = onverbs.Create(plan, onverbs.Config{
		Open: func() (verbs.Context, error) { return findDevice(&own, q.Device, links[0].g) },
		CQ:   verbs.CQConfig{Depth: q.Window * len(links)},
		QP:   verbs.QPConfig{Type: verbs.RC, Caps: verbs.QPCaps{MaxSend: q.Window * most, MaxSendSGE: 1, MaxInline: int(min(q.Size(), verbs.InlineLen))}},
	})
	if err != nil {
		return nil, err
	}
	first := r.set.Contexts[0].Info()
	r.name = first.Provider + "/" + first.Name
	for i, th := range plan.Threads {
		if err := r.open(i, th.QPs[0], links[i]); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	return r, nil
}

// open sets up thread i, which uses the queue pair with number n.
func (r *rate) open(i, n int, l *link) error {
	p, planned := &r.p, r.set.Plan.QP(n)
	ctx := r.set.Contexts[planned.Context-1]
	k := &rateThread{
		rate: r, link: l, number: i, qp: r.set.QPs[n-1], cq: r.set.CQs[planned.CQ-1], inline: p.inlined(ctx.Attr()),
		list: make([]verbs.SendWR, p.PostList), wcs: make([]verbs.WC, max(1, p.Window/p.Unsignaled)),
		depth: int64(p.Window), unsignaled: int64(p.Unsignaled),
	}
	r.threads = append(r.threads, k)
	at := region{pd: r.set.PD(n)}
	if p.Sharing == "" {
		at.group = i / max(1, p.Ways.MR)
	}
	m := r.regions[at]
	if m == nil {
		var err error
		if m, err = at.pd.Register(r.memory, verbs.MRConfig{Access: remoteAccess}); err != nil {
			return err
		}
		r.regions[at] = m
	}
	if k.qp.Query().State == verbs.StateReset { // else threads share it
		if err := connectToItself(ctx, k.qp); err != nil {
			return err
		}
	}
	buf := i - i%max(1, p.Ways.Buf)
	w := verbs.SendWR{Op: verbs.OpWrite, Remote: m.Addr() + uint64(len(r.memory)/2+i*r.stride), RKey: m.RKey()}
	if k.inline {
		w.Flags, w.InlineLen = verbs.SendInline, uint8(p.Size())
	} else {
		w.SG[0], w.NumSG = verbs.SGE{Addr: m.Addr() + uint64(buf*r.stride), Len: uint32(p.Size()), LKey: m.LKey()}, 1
	}
	for j := range k.list {
		k.list[j] = w
	}
	return nil
}

// connectToItself takes a queue pair to RTS, with itself as its peer.
func connectToItself(ctx verbs.Context, q verbs.QP) error {
	port, err := ctx.Port(verbsPort)
	if err != nil {
		return err
	}
	gid, err := ctx.GID(verbsPort, 0)
	if err != nil {
		return err
	}
	return verbs.ConnectRC(q, verbs.RemoteQP{
		AV:  verbs.AHAttr{DGID: gid, DLID: port.LID, Port: verbsPort, HopLimit: 64, PeerFeatures: port.PeerFeatures},
		QPN: q.QPN(), MTU: port.PathMTU(), MaxRdAtomic: 1, PeerFeatures: port.PeerFeatures,
	}, verbs.QPAttr{Access: remoteAccess, MaxRdAtomic: 1, MinRNRTimer: 1, Timeout: verbsTimeout, RetryCnt: verbsRetry, RNRRetry: verbsRetry})
}

func (r *rate) transports() string { return r.name }

// close closes the objects of all threads.
func (r *rate) close() error {
	var errs []error
	for _, m := range r.regions {
		errs = append(errs, m.Close())
	}
	clear(r.regions)
	return errors.Join(errors.Join(errs...), r.set.Close())
}

// layout returns how the data of the message is passed.
func (k *rateThread) layout() Layout {
	if k.inline {
		return Short
	}
	return Zcopy
}

// passive does nothing: both ends are of one thread.
func (k *rateThread) passive(int64) error { return nil }

func (k *rateThread) progress() { _ = k.idle() }

func (k *rateThread) active(n int64, st *stamps) error {
	k.left = n
	for ticks := int64(0); k.left > 0; {
		c := min(k.left, int64(len(k.list)))
		if err := k.post(int(c)); err != nil {
			return err
		}
		for ticks += c; ticks >= st.every; ticks -= st.every {
			st.tick()
		}
		if err := k.link.Err(); err != nil {
			return err
		}
	}
	for k.posted > k.done.Load() {
		if err := k.idle(); err != nil {
			return err
		}
	}
	return nil
}

// Work request identifiers have the thread, and how many work requests of it the completion covers.
const coveredBits = 16

// post posts the first n work requests of the list once the window has room.
func (k *rateThread) post(n int) error {
	for k.posted+int64(n)-k.done.Load() > k.depth {
		if err := k.idle(); err != nil {
			return err
		}
	}
	k.left -= int64(n)
	for i := range k.list[:n] {
		w := &k.list[i]
		w.Flags &^= verbs.SendSignaled
		k.since++
		if k.since == k.unsignaled || k.left == 0 && i == n-1 {
			w.Flags |= verbs.SendSignaled
			w.ID = uint64(k.number)<<coveredBits | uint64(k.since)
			k.since = 0
		}
	}
	k.posted += int64(n)
	for wrs := k.list[:n]; ; {
		took, st := k.qp.PostSend(wrs)
		if wrs = wrs[took:]; len(wrs) == 0 {
			return nil
		}
		if st != ucs.NoResource {
			return fmt.Errorf("%s: post: %w", k.name, st.Err())
		}
		if err := k.idle(); err != nil {
			return err
		}
	}
}

// idle polls the completion queue once.
func (k *rateThread) idle() error {
	n := k.cq.Poll(k.wcs)
	if n < 0 {
		return fmt.Errorf("%s: the completion queue overran", k.name)
	}
	for i := range n {
		w := &k.wcs[i]
		if w.Status != verbs.WCSuccess {
			return fmt.Errorf("%s: %v on qp %#06x: %v", k.name, w.Op, uint32(w.QPN), w.Status)
		}
		k.threads[w.ID>>coveredBits].done.Add(int64(w.ID & (1<<coveredBits - 1)))
	}
	if k.spins++; n == 0 && k.spins%64 == 0 {
		if k.spins%yieldSpins == 0 {
			cpu.Yield()
		}
		return k.link.Err()
	}
	return nil
}

// figures returns what the device has counted per message, of all phases, and what its objects take.
func (r *rate) figures() (perMessage, resources []Figure) {
	c := map[string]uint64{}
	for _, ctx := range r.set.Contexts {
		for _, n := range ctx.Stats().Snapshot() {
			c[n.Name] += n.Value
		}
	}
	messages := int64(0)
	for _, k := range r.threads {
		messages += k.posted
	}
	c["device.locks"] -= c["device.cq_locks"]
	for _, name := range []string{"locks", "cq_locks", "doorbells", "blueflames", "wqe_fetches", "payload_fetches", "cqes"} {
		perMessage = append(perMessage, Figure{name, float64(c["device."+name]) / float64(max(1, messages))})
	}
	return perMessage, []Figure{
		{"contexts", float64(len(r.set.Contexts))},
		{"uar_pages", float64(c["uar.pages_static"] + c["uar.pages_dynamic"])},
		{"uuars", float64(c["uar.uuars"])},
		{"uuars_used", float64(c["uar.used"])},
		{"qps", float64(c["objects.qp"])},
		{"cqs", float64(c["objects.cq"])},
		{"mrs", float64(c["objects.mr"])},
	}
}
