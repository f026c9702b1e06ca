package verbstest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// everything is the access that lets peers do all.
const everything = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

// side is one of the two devices.
type side struct {
	verbs.Context
	env   *env
	index int
	pd    verbs.PD
	port  verbs.PortAttr
	gid   verbs.GID
	idle  *cq // nothing completes into it; polling it drives the device
}

func newSide(e *env, index int) *side {
	e.Helper()
	s := &side{Context: e.fabric.Devices[index], env: e, index: index}
	var err error
	s.port, err = s.Port(1)
	require.NoError(e, err, "port 1")
	s.gid, err = s.GID(1, s.port.GIDIndex)
	require.NoError(e, err, "gid %d", s.port.GIDIndex)
	s.pd = s.domain()
	s.idle = s.cq(16)
	return s
}

// domain makes a protection domain, closed at the end of the case.
func (s *side) domain() verbs.PD {
	s.env.Helper()
	pd, err := s.AllocPD()
	require.NoError(s.env, err, "pd")
	s.env.closes("pd", pd.Close)
	return pd
}

// closes has what was made closed at the end of the case.
func (e *env) closes(what string, f func() error) {
	e.Cleanup(func() { assert.NoError(e, f(), "close %s", what) })
}

// cq is a completion queue whose completions the suite gathers.
type cq struct {
	verbs.CQ
	env    *env
	done   []verbs.WC
	paused bool // the case polls it itself
	dead   bool // it overran
}

func (s *side) cq(depth int) *cq {
	s.env.Helper()
	return s.cqOf(verbs.CQConfig{Depth: depth})
}

func (s *side) cqOf(c verbs.CQConfig) *cq {
	s.env.Helper()
	v, err := s.CreateCQ(c)
	require.NoError(s.env, err, "cq")
	q := &cq{CQ: v, env: s.env}
	s.env.cqs = append(s.env.cqs, q)
	s.env.closes("cq", func() error {
		q.paused = true
		return v.Close()
	})
	return q
}

// poll gathers the completions and returns their number.
func (c *cq) poll() int {
	var wcs [7]verbs.WC
	n := c.Poll(wcs[:])
	if n < 0 {
		c.dead = true
		return 0
	}
	c.done = append(c.done, wcs[:n]...)
	return n
}

// take gives the first gathered completion of a queue pair.
func (c *cq) take(qpn verbs.QPN) (verbs.WC, bool) {
	for i, w := range c.done {
		if w.QPN == qpn {
			c.done = append(c.done[:i:i], c.done[i+1:]...)
			return w, true
		}
	}
	return verbs.WC{}, false
}

// mem is registered memory.
type mem struct {
	verbs.MR
	buf []byte
}

// mem registers n bytes with access in the side's domain.
func (s *side) mem(n int, access verbs.Access) *mem {
	s.env.Helper()
	return s.memOf(s.pd, make([]byte, n), verbs.MRConfig{Access: access})
}

func (s *side) memOf(pd verbs.PD, buf []byte, c verbs.MRConfig) *mem {
	s.env.Helper()
	m, err := pd.Register(buf, c)
	require.NoError(s.env, err, "register")
	s.env.closes("mr", m.Close)
	return &mem{MR: m, buf: buf}
}

// revocable registers n bytes whose key work requests may make invalid.
func (s *side) revocable(n int) *mem {
	s.env.Helper()
	buf := make([]byte, n)
	m, err := s.pd.Register(buf, verbs.MRConfig{Access: everything, Revocable: true})
	s.env.unlessSupported(err, "memory that can be invalidated")
	s.env.closes("mr", m.Close)
	return &mem{MR: m, buf: buf}
}

// sge is n bytes from off on.
func (m *mem) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: m.Addr() + uint64(off), Len: uint32(n), LKey: m.LKey()}
}

// fill writes a pattern of n bytes and gives it.
func (m *mem) fill(n int, seed byte) []byte {
	copy(m.buf, pattern(n, seed))
	return m.buf[:n]
}

// pattern gives n bytes that differ by place and seed.
func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i) ^ byte(i>>8)*7 ^ seed*31
	}
	return p
}

// ah addresses another side, or this one.
func (s *side) ah(to *side) verbs.AH {
	s.env.Helper()
	ah, err := s.pd.CreateAH(s.address(to))
	require.NoError(s.env, err, "ah")
	s.env.closes("ah", ah.Close)
	return ah
}

// address is how the side reaches another, or itself.
func (s *side) address(to *side) verbs.AHAttr {
	return verbs.AHAttr{DGID: to.gid, DLID: to.port.LID, SGIDIndex: s.port.GIDIndex, Port: 1, HopLimit: 64, PeerFeatures: to.port.PeerFeatures}
}

// refused wants err to be an invalid parameter.
func (e *env) refused(err error, what string, args ...any) {
	e.Helper()
	require.ErrorIs(e, err, ucs.ErrInvalid, append([]any{what}, args...)...)
}

// busy wants err to say that something depends on what was to be closed.
func (e *env) busy(err error, what string) {
	e.Helper()
	require.ErrorIs(e, err, ucs.ErrBusy, "%s", what)
}
