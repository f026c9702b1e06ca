package perf

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/uct"
)

// uctSide is one side of a UCT test: an iface, an endpoint to the other side, memory that the
// other side accesses, and the counts of completions and messages.
type uctSide struct {
	link  *link
	alone bool
	p     *Params
	test  Test

	name   string // transport/device, for errors
	domain uct.Domain
	iface  uct.Iface
	attr   *uct.IfaceAttr
	ep     uct.Endpoint
	mem    uct.Mem // written and read by the other side
	out    uct.Mem // the message to send
	buf    []byte  // the bytes of out, or heap memory
	key    uct.RKey
	keyed  bool
	addr   uint64 // address of the other side's memory

	got      int64 // received active messages with data
	acked    int64 // sent messages that the other side has acknowledged
	acks     int64 // received messages that this side has acknowledged
	inFlight int
	failed   error
	spins    uint
}

// progressBudget bounds one Progress call.
const progressBudget = 64

// uctHello is exchanged by the sides before they create endpoints.
type uctHello struct {
	Name   string `json:"name"`
	Device []byte `json:"device"`
	Iface  []byte `json:"iface"`
	Key    []byte `json:"key,omitempty"`
	Base   uint64 `json:"base,omitempty"`
}

// uctKernel is the loops of a UCT test and the handler of the iface's callbacks.
type uctKernel interface {
	kernel
	uct.Handler
}

// openUCT opens the transport and sets up the test on it.
func openUCT(c *Config, l *link, p *Params, t Test) (kernel, error) {
	s := &uctSide{link: l, alone: l.g.Size() == 1, p: p, test: t}
	k, err := s.build(c, l.g)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return k, nil
}

func (s *uctSide) build(c *Config, g Group) (kernel, error) {
	k, err := s.kernel()
	if err != nil {
		return nil, err
	}
	if err := s.open(c, k); err != nil {
		return nil, err
	}
	if err := s.fits(); err != nil {
		return nil, err
	}
	if err := s.allocate(); err != nil {
		return nil, err
	}
	if err := s.connect(g); err != nil {
		return nil, err
	}
	return k, nil
}

// kernel creates the loops of the test. The side must be set up before they run.
func (s *uctSide) kernel() (uctKernel, error) {
	switch s.test.Op {
	case OpAM:
		return newUCTAM(s), nil
	case OpPut:
		return newUCTPut(s), nil
	case OpGet:
		return newUCTGet(s), nil
	case OpAdd, OpFetchAdd, OpSwap, OpCompareSwap:
		return newUCTAtomic(s), nil
	case OpTag, OpTagSync, OpStream, OpSend, OpDatagram, OpSharedPut:
	}
	return nil, fmt.Errorf("test %s: %w", s.test.Name, ErrNotSupportedYet)
}

// open opens the one iface that the parameters name.
func (s *uctSide) open(c *Config, h uct.Handler) error {
	d, info, err := findIface(c, s.p.Transport, s.p.Device)
	if err != nil {
		return err
	}
	s.domain, s.name = d, info.Transport+"/"+info.Device
	var id uct.UUID
	if _, err := rand.Read(id[:]); err != nil {
		return fmt.Errorf("make an identifier: %w", err)
	}
	if s.iface, err = d.OpenIface(info, uct.IfaceConfig{Handler: h, Worker: id}); err != nil {
		return fmt.Errorf("open %s: %w", s.name, err)
	}
	s.attr = s.iface.Attr()
	return nil
}

// allocate allocates the memory that the other side accesses, and the message.
func (s *uctSide) allocate() error {
	n := s.span()
	s.buf = make([]byte, padded(n))
	if !s.test.Op.OneSided() && s.p.Layout != Zcopy {
		return nil
	}
	if !s.domain.Attr().Allocate {
		return fmt.Errorf("%s allocates no memory: %w", s.name, ucs.ErrUnsupported)
	}
	flags := uct.MemRemote
	if s.p.NoPin {
		flags |= uct.MemNoPin
	}
	var err error
	if s.mem, err = s.domain.Allocate(padded(n), flags); err != nil {
		return fmt.Errorf("allocate %d bytes: %w", padded(n), err)
	}
	if s.out, err = s.domain.Allocate(padded(n), flags); err != nil {
		return fmt.Errorf("allocate %d bytes: %w", padded(n), err)
	}
	s.buf = s.out.Bytes()
	return nil
}

// span returns the length of the buffer that holds the pieces of a message.
func (s *uctSide) span() int64 {
	if s.p.Stride > 0 {
		return s.p.Stride * int64(len(s.p.Sizes))
	}
	return s.p.Size()
}

// connect exchanges addresses and creates the endpoint.
func (s *uctSide) connect(g Group) error {
	own := uctHello{Name: s.name, Device: s.iface.DeviceAddress(nil), Iface: s.iface.Address(nil)}
	if s.mem != nil {
		own.Key, own.Base = s.mem.AppendKey(nil), addressOf(s.mem.Bytes())
	}
	peer, err := swap(g, own)
	if err != nil {
		return err
	}
	if peer.Name != own.Name {
		return fmt.Errorf("this side uses %s, the other side %s", own.Name, peer.Name)
	}
	a := uct.Address{Device: peer.Device, Iface: peer.Iface}
	if ok, why := s.iface.Reachable(a); !ok {
		return fmt.Errorf("%s: %w: %s", s.name, ucs.ErrUnreachable, why)
	}
	if s.ep, err = s.iface.NewEndpoint(a); err != nil {
		return fmt.Errorf("connect over %s: %w", s.name, err)
	}
	s.iface.Activate()
	if s.mem == nil {
		return nil
	}
	if s.key, err = s.domain.UnpackKey(peer.Key); err != nil {
		return fmt.Errorf("key of the other side's memory: %w", err)
	}
	s.keyed, s.addr = true, peer.Base
	return nil
}

// swap exchanges v as JSON.
func swap[T any](g Group, v T) (T, error) {
	var peer T
	b, err := json.Marshal(v)
	if err != nil {
		return peer, fmt.Errorf("encode address: %w", err)
	}
	if b, err = g.Exchange(b); err != nil {
		return peer, err
	}
	if err := json.Unmarshal(b, &peer); err != nil {
		return peer, fmt.Errorf("address of the other side: %w", err)
	}
	return peer, nil
}

func (s *uctSide) progress() { s.iface.Progress(progressBudget) }

func (s *uctSide) transports() string { return s.name }

// idle is one pass of a waiting loop; an error ends the wait.
func (s *uctSide) idle() error {
	if s.iface.Progress(progressBudget) != 0 {
		if s.failed != nil {
			return s.failure()
		}
		return nil
	}
	if s.spins++; s.spins%64 == 0 {
		return s.idleSlow()
	}
	return nil
}

//go:noinline
func (s *uctSide) idleSlow() error {
	if s.spins%yieldSpins == 0 {
		cpu.Yield()
	}
	if s.failed != nil {
		return s.failure()
	}
	return s.link.Err()
}

// failure returns the reason why the run failed, and the other side's failure if it is known by now.
func (s *uctSide) failure() error {
	if peerErr := s.link.check(); peerErr != nil && !errors.Is(peerErr, errOtherThread) {
		return fmt.Errorf("%w; %w", s.failed, peerErr)
	}
	return s.failed
}

// retry handles a status that is neither OK nor InProgress. It returns nil if the operation may be
// retried.
//
//go:noinline
func (s *uctSide) retry(st uct.Status) error {
	if st == ucs.NoResource {
		return s.idle()
	}
	s.progress() // reports the reason
	if s.failed == nil {
		s.failed = fmt.Errorf("over %s: %w", s.name, st.Err())
	}
	return s.failure()
}

// drain waits until at most limit operations are outstanding.
func (s *uctSide) drain(limit int) error {
	for s.inFlight > limit {
		if err := s.idle(); err != nil {
			return err
		}
	}
	return nil
}

// postOne posts one operation, once there is room for it.
func (s *uctSide) postOne(post func() uct.Status) error {
	for {
		switch st := post(); st {
		case ucs.OK:
			return nil
		case ucs.InProgress:
			s.inFlight++
			return nil
		default:
			if err := s.retry(st); err != nil {
				return err
			}
		}
	}
}

// postAll posts n operations, at most limit of them in flight.
func (s *uctSide) postAll(n, limit int, post func() uct.Status) error {
	for range n {
		if err := s.postOne(post); err != nil {
			return err
		}
		if err := s.drain(limit - 1); err != nil {
			return err
		}
	}
	return nil
}

// flush waits until the posted operations have taken effect on the other side.
func (s *uctSide) flush() error {
	if err := s.drain(0); err != nil {
		return err
	}
	if err := s.postOne(func() uct.Status { return s.ep.Flush(uct.FlushRemote, 1) }); err != nil {
		return err
	}
	return s.drain(0)
}

func (s *uctSide) abandon() { s.ep.Flush(uct.FlushCancel, 0) }

func (s *uctSide) close() error {
	var errs []error
	if s.keyed {
		s.domain.ReleaseKey(s.key)
	}
	if s.ep != nil {
		s.ep.Close()
		s.iface.Deactivate()
	}
	if s.iface != nil {
		errs = append(errs, s.iface.Close())
	}
	for _, m := range []uct.Mem{s.mem, s.out} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	if s.domain != nil {
		errs = append(errs, s.domain.Close())
	}
	return errors.Join(errs...)
}

// HandleEvents counts completed operations.
func (s *uctSide) HandleEvents(es []uct.Event) {
	s.inFlight -= len(es)
	for i := range es {
		if es[i].Status != ucs.OK && s.failed == nil {
			s.failed = fmt.Errorf("over %s: %w", s.name, es[i].Status.Err())
		}
	}
}

// HandleAM counts messages; acknowledgments contain a count themselves.
func (s *uctSide) HandleAM(_ []byte, ds []uct.Desc) uint64 {
	for i := range ds {
		if ds[i].ID == amData {
			s.got++
		} else {
			s.acked = int64(ds[i].Header)
		}
	}
	return 0
}

// HandlePending is never called: the loops retry.
func (s *uctSide) HandlePending(ts []uct.Token) int { return len(ts) }

// HandleFailure ends the run. Its error has more detail than that of the failed operations.
func (s *uctSide) HandleFailure(f uct.Failure) {
	if f.Err != nil && (s.failed == nil || errors.Is(s.failed, ucs.ErrPeerFailed)) {
		s.failed = fmt.Errorf("over %s: %w", s.name, f.Err)
	}
}
