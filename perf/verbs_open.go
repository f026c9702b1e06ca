package perf

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goucx/goucx/verbs"
)

// verbsHello is exchanged by the sides before they connect queue pairs.
type verbsHello struct {
	GID  verbs.GID `json:"gid"`
	LID  uint16    `json:"lid"`
	QPN  verbs.QPN `json:"qpn"`
	PSN  verbs.PSN `json:"psn"`
	MTU  verbs.MTU `json:"mtu"`
	QKey uint32    `json:"qkey,omitempty"`
	Addr uint64    `json:"addr,omitempty"`
	RKey uint32    `json:"rkey,omitempty"`
	// Features are those of the port, verbs.PortAttr.PeerFeatures.
	Features uint32 `json:"features,omitempty"`
}

// Attributes of the queue pairs. A time-out is half a second, so that a peer on a busy machine
// does not count as dead. A receiver without a posted receive is waited for.
const (
	verbsPort    = 1
	verbsTimeout = 17
	verbsRetry   = 7
	verbsAtomics = 16
	// pingPongStride: a ping-pong requests few completions.
	pingPongStride = 32
	remoteAccess   = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic
	// grhArea precedes the data of a datagram.
	grhArea = 40
)

// openVerbs opens the device and sets up the test on it. Within one process each side of a
// ping-pong has a device; all other tests use a queue pair that is connected to itself.
func openVerbs(c *Config, l *link, p *Params, t Test) (kernel, error) {
	if l.g.Size() == 1 && t.Pattern == PingPong && t.Op != OpDatagram {
		a, b, err := openSides(c, l, p, t)
		if err != nil {
			return nil, err
		}
		return newVerbsBoth(a, b), nil
	}
	s := newVerbsSide(c, l, p, t)
	if err := s.build(c); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s.kernel(), nil
}

func newVerbsSide(c *Config, l *link, p *Params, t Test) *verbsSide {
	return &verbsSide{link: l, p: p, test: t, log: c.Log}
}

// build opens the device, creates the objects and connects the queue pair.
func (s *verbsSide) build(c *Config) (err error) {
	if s.ctx, err = findDevice(c, s.p.Device, s.link.g); err != nil {
		return err
	}
	s.name = s.ctx.Info().Provider + "/" + s.ctx.Info().Name
	port, err := s.ctx.Port(verbsPort)
	if err != nil {
		return err
	}
	if err := s.fits(&port); err != nil {
		return err
	}
	if err := s.allocate(); err != nil {
		return err
	}
	if err := s.connect(&port); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.fillLists()
	for range recvLists {
		s.replenish()
	}
	return s.failed
}

func (s *verbsSide) kernel() kernel {
	switch {
	case s.test.Op == OpDatagram:
		return newVerbsDatagram(s)
	case s.test.Pattern != PingPong:
		return &verbsStream{verbsSide: s}
	default:
		return newVerbsPingPong(s)
	}
}

// fits returns an error for parameters that the device does not support.
func (s *verbsSide) fits(port *verbs.PortAttr) error {
	most := int64(port.MaxMessage)
	if s.test.Op == OpDatagram {
		most = int64(port.ActiveMTU.Bytes())
	}
	if n := s.p.Size(); n > most {
		return fmt.Errorf("%s: message size (%d) is larger than max supported (%d)", s.name, n, most)
	}
	if n, most := s.recvDepth(), s.ctx.Attr().MaxQPWR; n > most || s.sendDepth() > most {
		return fmt.Errorf("%s: window %d needs queues of %d, the device has %d", s.name, s.p.window(s.test), n, most)
	}
	return nil
}

// recvLists is how many lists of receives are posted initially.
const recvLists = 4

func (s *verbsSide) sendDepth() int {
	return max(s.p.window(s.test), s.p.postList(), 2*pingPongStride) + 8
}
func (s *verbsSide) recvDepth() int { return recvLists * s.recvList() }

// recvList returns the number of receives that are posted at once: half of the window.
func (s *verbsSide) recvList() int { return max((s.p.window(s.test)+1)/2, 8) }

// allocate creates the objects and the memory.
func (s *verbsSide) allocate() (err error) {
	typ, room := verbs.RC, s.p.Size()
	if s.test.Op == OpDatagram {
		typ, room = verbs.UD, room+grhArea
	}
	if s.base, err = s.ctx.AllocPD(); err != nil {
		return err
	}
	if s.td, err = s.ctx.AllocTD(verbs.TDConfig{}); err != nil {
		return err
	}
	if s.pd, err = s.base.Parent(s.td); err != nil {
		return err
	}
	if s.cq, err = s.ctx.CreateCQ(verbs.CQConfig{Depth: s.sendDepth() + s.recvDepth(), Domain: s.pd}); err != nil {
		return err
	}
	if s.in, err = s.pd.Register(make([]byte, padded(room)), verbs.MRConfig{Access: remoteAccess}); err != nil {
		return err
	}
	if s.out, err = s.pd.Register(make([]byte, padded(s.span())), verbs.MRConfig{Access: remoteAccess}); err != nil {
		return err
	}
	s.qp, err = s.pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.QPCaps{
		MaxSend: s.sendDepth(), MaxRecv: s.recvDepth(), MaxSendSGE: len(s.p.Sizes), MaxRecvSGE: 1, MaxInline: s.maxInline(),
	}})
	return err
}

// maxInline returns the maximum length of a message in a work request.
func (s *verbsSide) maxInline() int { return min(verbs.InlineLen, s.ctx.Attr().MaxInline) }

// span returns the length of the buffer that holds the pieces of a message.
func (s *verbsSide) span() int64 {
	if s.p.Stride > 0 {
		return s.p.Stride * int64(len(s.p.Sizes))
	}
	return s.p.Size()
}

// connect exchanges addresses and brings the queue pair to its working state.
func (s *verbsSide) connect(port *verbs.PortAttr) error {
	gid, err := s.ctx.GID(verbsPort, 0)
	if err != nil {
		return err
	}
	var r [8]byte
	_, _ = rand.Read(r[:]) // never fails
	own := verbsHello{
		GID: gid, LID: port.LID, QPN: s.qp.QPN(), MTU: port.PathMTU(), Addr: s.in.Addr(), RKey: s.in.RKey(),
		PSN: verbs.PSN(0).Add(int(binary.LittleEndian.Uint32(r[:]))), QKey: binary.LittleEndian.Uint32(r[4:]) >> 1,
		Features: port.PeerFeatures,
	}
	if s.peer, err = swap(s.link.g, own); err != nil {
		return err
	}
	av := verbs.AHAttr{DGID: s.peer.GID, DLID: s.peer.LID, Port: verbsPort, HopLimit: 64, PeerFeatures: s.peer.Features}
	if s.test.Op == OpDatagram {
		if s.ah, err = s.pd.CreateAH(av); err != nil {
			return err
		}
		return verbs.StartUD(s.qp, verbs.QPAttr{Port: verbsPort, QKey: own.QKey, SQPSN: own.PSN})
	}
	return verbs.ConnectRC(s.qp, verbs.RemoteQP{
		AV: av, QPN: s.peer.QPN, PSN: s.peer.PSN, MTU: min(own.MTU, s.peer.MTU), MaxRdAtomic: verbsAtomics,
		PeerFeatures: own.Features & s.peer.Features,
	}, verbs.QPAttr{
		Access: remoteAccess, SQPSN: own.PSN, MaxRdAtomic: verbsAtomics, MinRNRTimer: 1,
		Timeout: verbsTimeout, RetryCnt: verbsRetry, RNRRetry: verbsRetry,
	})
}
