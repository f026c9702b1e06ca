package shm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// zoo is a few ifaces on which a monkey does whatever the contract allows, from
// outside and from within callbacks.
type zoo struct {
	t       *testing.T
	rnd     *rand.Rand
	cages   []*cage
	streams []*stream
	calm    bool // callbacks do nothing more
}

// cage is an iface and the handler of its callbacks.
type cage struct {
	z       *zoo
	f       *iface
	open    []*stream
	waiting map[uct.Token]*stream
	ended   map[uint32]bool // sources whose end was reported
	told    map[uct.Endpoint]bool
	depth   int
}

// stream is an endpoint and what it sent.
type stream struct {
	id        uint64
	ep        uct.Endpoint
	from, to  *cage
	sent, got uint64
	pending   bool
	lost      bool // one of the ends was closed with its iface
}

func (z *zoo) open() *cage {
	c := &cage{z: z, waiting: map[uct.Token]*stream{}, ended: map[uint32]bool{}, told: map[uct.Endpoint]bool{}}
	f, err := openIface(newTestDomain(z.t), uct.IfaceInfo{}, uct.IfaceConfig{Handler: c, Worker: uct.UUID{1}})
	require.NoError(z.t, err)
	c.f = f.(*iface)
	if z.rnd.IntN(2) == 0 {
		c.f.scanInterval = config.Forever
	}
	if z.rnd.IntN(4) == 0 {
		c.f.fenceFlag = flagFence
	}
	return c
}

func (c *cage) HandleEvents([]uct.Event) {}

func (c *cage) HandleAM(mem []byte, ds []uct.Desc) uint64 {
	for i := range ds {
		d := &ds[i]
		delete(c.ended, d.RxConn) // the number of a new connection
		s := c.z.streams[d.Header>>32]
		data := mem[d.Off:][:d.Len]
		if s.to != c || d.Header&0xffffffff != s.got || len(data) != length(s, s.got) || bytes.Count(data, []byte{byte(s.got)}) != len(data) {
			require.Fail(c.z.t, "wrong message", "%+v: want number %d of stream %d", *d, s.got, s.id)
		}
		s.got++
	}
	c.within()
	return 0
}

func (c *cage) HandlePending(ts []uct.Token) int {
	c.within()
	for n, t := range ts {
		s := c.waiting[t]
		if s == nil {
			continue
		}
		if !s.send() {
			return n
		}
		delete(c.waiting, t)
		s.pending = false
	}
	return len(ts)
}

func (c *cage) HandleFailure(f uct.Failure) {
	if f.RxConn == 0 { // the end of what the peer sends was reported before
		require.NotNil(c.z.t, f.Endpoint)
	}
	if f.Endpoint != nil {
		require.False(c.z.t, c.told[f.Endpoint], "reported twice")
		c.told[f.Endpoint] = true
	}
	c.within()
}

// within does something from inside a callback.
func (c *cage) within() {
	if c.depth++; c.depth == 1 && !c.z.calm && c.z.rnd.IntN(20) == 0 {
		c.z.act(c)
	}
	c.depth--
}

// length of the n-th message of a stream.
func length(s *stream, n uint64) int { return int((s.id*31 + n*n*7) % 900) }

// send sends the next message and reports whether it was accepted.
func (s *stream) send() bool {
	n := length(s, s.sent)
	b, st := s.ep.ReserveAM(1, s.id<<32|s.sent, n)
	if st != ucs.OK {
		require.NotEqual(s.from.z.t, ucs.TooLong, st)
		return false
	}
	for i := range b {
		b[i] = byte(s.sent)
	}
	s.ep.CommitAM(n)
	s.sent++
	return true
}

func (s *stream) close() {
	s.ep.PendingPurge(func(t uct.Token) { delete(s.from.waiting, t) })
	s.ep.Close()
	for i, o := range s.from.open {
		if o == s {
			s.from.open = append(s.from.open[:i], s.from.open[i+1:]...)
			break
		}
	}
}

// act does one thing on c.
func (z *zoo) act(c *cage) {
	var s *stream
	if len(c.open) > 0 {
		s = c.open[z.rnd.IntN(len(c.open))]
	}
	switch k := z.rnd.IntN(100); {
	case k < 8 && len(c.open) < 30:
		to := z.cages[z.rnd.IntN(len(z.cages))]
		if to == c {
			return
		}
		ep, err := c.f.NewEndpoint(addressOf(to.f))
		require.NoError(z.t, err)
		s = &stream{id: uint64(len(z.streams)), ep: ep, from: c, to: to}
		z.streams = append(z.streams, s)
		c.open = append(c.open, s)
	case s == nil:
	case k < 14:
		s.close()
	case k < 80:
		for range z.rnd.IntN(20) {
			if s.pending || !s.send() {
				break
			}
		}
		if !s.pending && z.rnd.IntN(3) == 0 {
			t := uct.Token(s.id + 1)
			if !s.send() && s.ep.PendingAdd(t) == ucs.OK {
				c.waiting[t], s.pending = s, true
			}
		}
	case k < 82:
		s.ep.PendingPurge(func(t uct.Token) { delete(c.waiting, t) })
		s.pending = false
	case k < 84:
		s.ep.Check(0)
	case c.depth > 0:
	case k < 90:
		c.f.Arm(uct.EventRecv | uct.EventSend)
	}
}

// replace closes an iface and opens another in its place.
func (z *zoo) replace(i int) {
	c := z.cages[i]
	for _, s := range z.streams {
		s.lost = s.lost || s.from == c || s.to == c
	}
	require.NoError(z.t, c.f.Close())
	for len(c.open) > 0 {
		c.open[0].close()
	}
	z.cages[i] = z.open()
}

func (z *zoo) run(steps int) {
	for range steps {
		i := z.rnd.IntN(len(z.cages))
		c := z.cages[i]
		switch z.rnd.IntN(400) {
		case 0:
			z.replace(i)
		case 1:
			c.f.left -= 2 * stalePasses
		default:
			z.act(c)
		}
		for range z.rnd.IntN(30) {
			z.cages[z.rnd.IntN(len(z.cages))].f.Progress(1 + z.rnd.IntN(64))
		}
	}
}

// end closes every endpoint; everything accepted must have come.
func (z *zoo) end() {
	z.calm = true
	var fs []*iface
	for _, c := range z.cages {
		fs = append(fs, c.f)
		for len(c.open) > 0 {
			c.open[0].close()
		}
	}
	live := func() (n int) {
		for _, f := range fs {
			n += f.Len()
		}
		return n
	}
	until(z.t, func() bool { return live() == 0 }, fs...)
	for _, s := range z.streams {
		if !s.lost {
			require.Equal(z.t, s.sent, s.got, "stream %d", s.id)
		}
	}
	for _, f := range fs {
		require.Empty(z.t, f.hot)
		require.Zero(z.t, f.Service(nil), "none is scheduled")
		require.NoError(z.t, f.Close())
	}
}

func TestMonkey(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 4
	}
	before := countFDs(t)
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			z := &zoo{t: t, rnd: rand.New(rand.NewPCG(seed, 1))}
			for range 3 + z.rnd.IntN(12) {
				z.cages = append(z.cages, z.open())
			}
			z.run(3000)
			z.end()
		})
	}
	require.Equal(t, before, countFDs(t), "descriptors")
}
