package perf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/uct"
)

// ucpContext is the context of all sides of a process.
type ucpContext struct {
	*ucp.Context
	sender *ucp.Worker // the one of all Threads; nil: there are none
}

// ucpSide is one side of a UCP test: a worker, an endpoint to the other side and, if the test
// needs it, memory that the other side accesses. With Params.Sharing a Thread sends, and the worker
// receives only.
type ucpSide struct {
	link *link
	p    *Params
	test Test

	ctx    *ucpContext
	w      *ucp.Worker
	thread *ucp.Thread // of ctx.sender; nil: w sends
	ep     ucp.Endpoint
	mem    *ucp.MemHandle // written and read by the other side
	out    *ucp.MemHandle // the message, unless Params.SendHeap
	key    *ucp.RemoteKey
	buf    []byte // the message
	in     []byte // where a two-sided test receives

	window []ucp.Request // outstanding requests
	oldest int
	spins  uint
}

// ucpHello is exchanged by the sides before they create endpoints.
type ucpHello struct {
	Address []byte `json:"address"`
	Key     []byte `json:"key,omitempty"`
}

// openUCP opens a context with one worker and sets up the test on it.
func openUCP(c *Config, l *link, p *Params, t Test) (kernel, error) {
	x, err := openContext(c, t)
	if err != nil {
		return nil, err
	}
	k, err := newUCPSide(x, l, p, t)
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return k, nil
}

// spin returns how long waits poll: without limit, or as the setting says.
func (s *ucpSide) spin() time.Duration {
	if s.p.Sleep {
		return 0
	}
	return -1
}

// closeTimeout bounds how long close waits for operations on this side's memory. Only a failed run
// leaves any, possibly of a side that has exited.
const closeTimeout = time.Second

// openContext opens a context for the test.
func openContext(c *Config, t Test) (*ucpContext, error) {
	x, err := ucp.Open(ucp.Config{Providers: c.Providers, Features: features(t), Settings: c.Settings, Log: c.Log, CloseTimeout: closeTimeout})
	if err != nil {
		return nil, err
	}
	return &ucpContext{Context: x}, nil
}

// newUCPSide sets up the test with a new worker of x. close closes the worker.
func newUCPSide(x *ucpContext, l *link, p *Params, t Test) (kernel, error) {
	s := &ucpSide{link: l, p: p, test: t, ctx: x, window: make([]ucp.Request, p.window(t))}
	wc := ucp.WorkerConfig{Mode: s.mode(), Spin: s.spin()}
	var err error
	if p.Sharing != "" {
		if wc.Sharing, err = sharing.Lookup(p.Sharing); err != nil {
			return nil, err
		}
	}
	if s.w, err = x.NewWorker(wc); err != nil {
		return nil, err
	}
	if p.Sharing != "" && (l.g.Index() == 0 || t.Pattern == PingPong) { // this side sends
		switch {
		case x.sender != nil:
		case p.threads() == 1:
			x.sender = s.w
		default: // one that receives nothing: all threads progress it where they share queue pairs
			if x.sender, err = x.NewWorker(wc); err != nil {
				return nil, err
			}
		}
		if s.thread, err = x.sender.NewThread(); err != nil {
			return nil, err
		}
	}
	if err := s.allocate(); err != nil {
		return nil, err
	}
	if err := s.connect(l); err != nil {
		return nil, err
	}
	if p.Unprogressed && t.unattended() && l.g.Size() > 1 {
		if err := s.checkUnprogressed(); err != nil {
			return nil, err
		}
	}
	return s.kernel()
}

// checkUnprogressed returns an error if the other side's worker carries out operations of the test,
// which would never complete.
func (s *ucpSide) checkUnprogressed() error {
	what, bad := "", false
	if size := uint64(s.p.Size()); s.test.Op.Atomic() {
		op := s.test.Op.uct()
		what = fmt.Sprintf("the atomic %v of %d bytes", op, size)
		var byMessages func(uct.AtomicOp) bool
		if size == 4 {
			word, err := ucp.AtomicAt[uint32](s.key, 0)
			if err != nil {
				return err
			}
			byMessages = word.ByMessages
		} else {
			word, err := ucp.AtomicAt[uint64](s.key, 0)
			if err != nil {
				return err
			}
			byMessages = word.ByMessages
		}
		// Of several outstanding atomics some wait for resources.
		several := s.test.Pattern == Stream || len(s.window) > 1
		bad = byMessages(op) || several && byMessages(uct.AtomicSwap)
	} else {
		what = map[Op]string{OpPut: "put", OpGet: "get"}[s.test.Op]
		bad = slices.ContainsFunc(s.ep.Protocols(s.key), func(r ucp.ProtocolRange) bool {
			return r.Op == what && r.Min <= size && size <= r.Max && r.Protocol == "am"
		})
	}
	if bad {
		return fmt.Errorf("-o: %s needs the responder's progress for %s: %w", s.transports(), what, errors.ErrUnsupported)
	}
	return nil
}

func (s *ucpSide) kernel() (kernel, error) {
	switch s.test.Op {
	case OpTag, OpTagSync:
		return newUCPTag(s), nil
	case OpPut:
		return newUCPPut(s), nil
	case OpGet:
		return newUCPGet(s), nil
	case OpAdd, OpFetchAdd, OpSwap, OpCompareSwap:
		if s.p.Size() == 4 {
			return newUCPAtomic[uint32](s)
		}
		return newUCPAtomic[uint64](s)
	case OpAM:
		return newUCPAM(s)
	case OpStream, OpSend, OpDatagram, OpSharedPut:
	}
	return nil, fmt.Errorf("test %s: %w", s.test.Name, ErrNotSupportedYet)
}

// features returns the features that the test uses.
func features(t Test) ucp.Feature {
	switch {
	case t.Op.Atomic():
		return ucp.FeatureAtomics | ucp.FeatureRMA
	case t.Op.OneSided():
		return ucp.FeatureRMA
	case t.Op == OpAM:
		return ucp.FeatureAM
	default:
		return ucp.FeatureTag
	}
}

func (s *ucpSide) mode() ucp.ThreadMode {
	switch s.p.Threads {
	case "multi":
		return ucp.ThreadMulti
	case "serialized":
		return ucp.ThreadSerialized
	default:
		return ucp.ThreadSingle
	}
}

// allocate allocates the message and the memory that the other side accesses.
func (s *ucpSide) allocate() error {
	n := padded(s.p.Size())
	mc := ucp.MemConfig{NoPin: s.p.NoPin}
	var err error
	switch {
	case !s.test.Op.OneSided():
	case s.p.RecvHeap:
		if s.mem, err = s.ctx.Register(make([]byte, n), mc); err != nil {
			return fmt.Errorf("register %d bytes: %w", n, err)
		}
	default:
		if s.mem, err = s.ctx.Allocate(n, mc); err != nil {
			return fmt.Errorf("allocate %d bytes: %w", n, err)
		}
	}
	if s.buf, s.out, err = s.memory(n, mc, s.p.SendHeap && !s.p.Registered); err == nil && (s.test.Op == OpTag || s.test.Op == OpTagSync || s.test.Op == OpAM) {
		s.in, _, err = s.memory(n, mc, s.p.RecvHeap) // the context closes the memory
	}
	return err
}

// memory returns n bytes, padded, for a message.
func (s *ucpSide) memory(n int, mc ucp.MemConfig, heap bool) ([]byte, *ucp.MemHandle, error) {
	if heap {
		b := make([]byte, n)
		clear(b) // untouched pages would all be the kernel's page of zeros, in the nearest cache
		return b[:s.p.Size()], nil, nil
	}
	m, err := s.ctx.Allocate(n, mc)
	if err != nil {
		return nil, nil, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	return m.Bytes()[:s.p.Size()], m, nil
}

// connect exchanges addresses and keys and creates the endpoint.
func (s *ucpSide) connect(l *link) error {
	own := ucpHello{Address: s.w.Address()}
	if s.mem != nil {
		own.Key = s.mem.Key()
	}
	peer, err := swap(l.g, own)
	if err != nil {
		return err
	}
	from := s.w
	if s.thread != nil {
		from = s.ctx.sender
	}
	s.ep, err = from.NewEndpoint(peer.Address, ucp.EndpointConfig{Eager: s.thread == nil, OnFailure: func(_ ucp.Endpoint, err error) { l.fail(err) }})
	if err != nil {
		return err
	}
	if s.thread != nil { // ctx.sender itself connects to no one
		s.ep = s.ep.On(s.thread)
	}
	if s.mem != nil {
		if s.key, err = s.ep.UnpackKey(peer.Key); err != nil {
			return fmt.Errorf("key of the other side's memory: %w", err)
		}
	}
	return nil
}

func (s *ucpSide) progress() {
	s.w.Progress()
	if s.thread != nil {
		s.thread.Progress()
	}
}

// transports returns the lanes for the test's operations.
func (s *ucpSide) transports() string {
	use := "am"
	switch {
	case s.test.Op.Atomic():
		use = "amo"
	case s.test.Op.OneSided():
		use = "rma"
	}
	var names []string
	for _, l := range s.ep.Info().Lanes {
		if slices.Contains(l.Uses, use) {
			names = append(names, l.Transport+"/"+l.Device)
		}
	}
	return strings.Join(names, " ")
}

// yieldSpins is the number of idle passes, about 100 us, before a loop yields the processor. On a
// busy machine the peer may be waiting for it.
const yieldSpins = 1 << 14

// idle is one pass of a loop that waits for memory or a message; an error ends the wait. A Thread, which
// waits for nothing then, has a pass now and then.
func (s *ucpSide) idle() error {
	s.w.Progress()
	if s.spins++; s.spins%64 == 0 {
		return s.idleSlow()
	}
	return nil
}

//go:noinline
func (s *ucpSide) idleSlow() error {
	if s.thread != nil && s.spins%1024 == 0 {
		s.thread.Progress()
	}
	if s.spins%yieldSpins == 0 {
		cpu.Yield()
	}
	return s.link.Err()
}

// enqueue puts a request that has not completed into the window, and waits for the oldest one there.
//
//go:noinline
func (s *ucpSide) enqueue(r ucp.Request) error {
	old := s.window[s.oldest]
	s.window[s.oldest] = r
	if s.oldest++; s.oldest == len(s.window) {
		s.oldest = 0
	}
	if r.Done() {
		if err := r.Err(); err != nil {
			return err
		}
	}
	return s.wait(old)
}

// wait waits for r, an operation that this side posted.
func (s *ucpSide) wait(r ucp.Request) error {
	if err := posted(s, r); err != nil {
		return err
	}
	return r.Wait(s.link)
}

// posted waits until r, an operation of the Thread, is complete, if a Thread sends: its own wait would
// not progress the worker.
func posted[R interface{ Done() bool }](s *ucpSide, r R) error {
	for s.thread != nil && !r.Done() {
		s.thread.Progress()
		if err := s.idle(); err != nil {
			return err
		}
	}
	return nil
}

// drain waits for all requests in the window.
func (s *ucpSide) drain() error {
	for i, r := range s.window {
		s.window[i] = ucp.Request{}
		if err := s.wait(r); err != nil {
			return err
		}
	}
	return nil
}

// flush waits until the posted operations have taken effect on the other side.
func (s *ucpSide) flush() error {
	if err := s.drain(); err != nil {
		return err
	}
	return s.wait(s.ep.Flush())
}

func (s *ucpSide) abandon() { s.ep.Abort(nil) }

// close releases all resources. The context also closes the workers of other threads.
func (s *ucpSide) close() error { return s.ctx.Close() }
