package ucptest

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var tagBulkCases = []Case{
	{"4 many fragments", tagFragments},
	{"7 two senders, wildcard, 3 MB", tagTwoSenders},
	{"25 receive posted while fragments come in", tagTakeOver},
	{"32 exact match among many others", tagAmongMany},
	{"both directions at once", tagBothWays},
	{"random operations against a naive matcher", tagOracle},
}

func tagFragments(t *testing.T, p *Pair) {
	for _, n := range []int{3000, 4096, 8191, 50_000, 65_536, scaled(1 << 20), scaled(5<<20 + 3)} {
		want := pattern(n, 5)
		for _, late := range []bool{false, true} {
			buf := make([]byte, n+8)
			var rr ucp.RecvRequest
			if !late {
				rr = p.B.TagRecv(buf, 1, exact)
			}
			rs := p.AB.TagSend(want, 1)
			if late {
				p.Until(rs.Done)
				rr = p.B.TagRecv(buf, 1, exact)
			}
			require.Equal(t, ucp.Message{Tag: 1, Len: n}, p.MustRecv(rr))
			require.NoError(t, p.Wait(rs))
			require.Equal(t, string(want), string(buf[:n]))
			require.Equal(t, make([]byte, 8), buf[n:])
		}
	}
}

func tagTwoSenders(t *testing.T, p *Pair) {
	n := scaled(3 << 20)
	c := p.NewWorker()
	first := p.AB
	second := p.BA
	if !p.Alone() {
		second = p.Connect(c, p.B)
	}
	x, y := pattern(n, 1), pattern(n, 2)
	for _, late := range []bool{false, true} {
		bufs := [2][]byte{make([]byte, n), make([]byte, n)}
		var rr [2]ucp.RecvRequest
		post := func() {
			for i := range rr {
				rr[i] = p.B.TagRecv(bufs[i], 0, 0)
			}
		}
		if !late {
			post()
		}
		rs := [2]ucp.Request{first.TagSend(x, 1), second.TagSend(y, 2)}
		if late {
			p.Settle()
			post()
		}
		seen := 0
		for i := range rr {
			m := p.MustRecv(rr[i])
			require.Equal(t, n, m.Len)
			seen += int(m.Tag)
			want := x
			if m.Tag == 2 {
				want = y
			}
			require.Equal(t, string(want), string(bufs[i]))
		}
		require.Equal(t, 3, seen, "one of each")
		require.NoError(t, p.Wait(rs[0]))
		require.NoError(t, p.Wait(rs[1]))
	}
}

func tagTakeOver(t *testing.T, p *Pair) {
	for _, n := range []int{40_000, scaled(3 << 20)} {
		for steps := range scaled(30) {
			want, buf := pattern(n, byte(steps)), make([]byte, n)
			rs := p.AB.TagSend(want, 1)
			for range steps {
				p.Progress()
			}
			room := n
			if steps%3 == 1 {
				room = n / 3
			}
			m, err := p.Recv(p.B.TagRecv(buf[:room], 1, exact))
			require.Equal(t, n, m.Len)
			if room < n {
				require.ErrorIs(t, err, ucp.ErrTruncated)
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, p.Wait(rs))
			require.Equal(t, string(want[:room]), string(buf[:room]))
		}
	}
}

func tagAmongMany(t *testing.T, p *Pair) {
	n := scaled(5000)
	others := make([]ucp.RecvRequest, n)
	var scratch [8]byte
	for i := range others {
		others[i] = p.B.TagRecv(scratch[:], ucp.Tag(1000+i), exact)
	}
	buf := make([]byte, 8)
	for i := range uint64(n) {
		r := p.B.TagRecv(buf, 1, exact)
		p.AB.TagSendUint64(i, 1)
		p.MustRecv(r)
		require.Equal(t, i, binary.LittleEndian.Uint64(buf))
	}
	for _, r := range others {
		require.False(t, r.Done())
		r.Cancel()
		r.Drop()
	}
}

func tagBothWays(t *testing.T, p *Pair) {
	n, size := scaled(40), 200_000
	var rs []ucp.Request
	var rr []ucp.RecvRequest
	want := pattern(size, 9)
	bufs := make([][]byte, 2*n)
	for i := range n {
		bufs[2*i], bufs[2*i+1] = make([]byte, size), make([]byte, size)
		rs = append(rs, p.AB.TagSend(want, 1), p.BA.TagSend(want, 2))
		rr = append(rr, p.B.TagRecv(bufs[2*i], 1, exact), p.A.TagRecv(bufs[2*i+1], 2, exact))
	}
	for i := range rs {
		require.NoError(t, p.Wait(rs[i]))
		p.MustRecv(rr[i])
	}
	for _, b := range bufs {
		require.Equal(t, string(want), string(b))
	}
}

// naive receives by walking slices.
type naive struct {
	posted []naiveRecv
	queue  []naiveSend
}

type naiveRecv struct {
	r         ucp.RecvRequest
	buf       []byte
	tag, mask ucp.Tag
	got       *naiveSend
}

type naiveSend struct {
	tag  ucp.Tag
	data []byte
}

// tagOracle compares with a matcher that is obviously right. Messages arrive in
// the order of sending, so each operation is carried to its end before the next.
func tagOracle(t *testing.T, p *Pair) {
	for seed := range uint64(scaled(8)) {
		r := rand.New(rand.NewPCG(seed, 2))
		var n naive
		for range 300 {
			tag := ucp.Tag(r.IntN(4))
			if r.IntN(2) == 0 {
				n.send(t, p, tag, r)
			} else {
				n.recv(p, tag, []ucp.Tag{exact, exact, 0, ^ucp.Tag(1)}[r.IntN(4)], r)
			}
		}
		n.drain(p)
		for i := range n.posted {
			n.check(t, p, &n.posted[i], seed)
		}
	}
}

func (n *naive) send(t *testing.T, p *Pair, tag ucp.Tag, r *rand.Rand) {
	size := []int{0, 8, 8, 60, 2000, 9000, 100_000}[r.IntN(7)]
	s := naiveSend{tag, pattern(size, byte(r.Uint32()))}
	require.NoError(t, p.Wait(p.AB.TagSend(s.data, tag)))
	if r.IntN(3) == 0 {
		p.Progress()
	}
	for i := range n.posted {
		if v := &n.posted[i]; v.got == nil && (v.tag^tag)&v.mask == 0 {
			v.got = &s
			return
		}
	}
	n.queue = append(n.queue, s)
}

func (n *naive) recv(p *Pair, tag, mask ucp.Tag, r *rand.Rand) {
	v := naiveRecv{buf: make([]byte, []int{0, 8, 4096, 200_000}[r.IntN(4)]), tag: tag, mask: mask}
	v.r = p.B.TagRecv(v.buf, tag, mask)
	for i := range n.queue {
		if s := n.queue[i]; (s.tag^tag)&mask == 0 {
			v.got = &s
			n.queue = append(n.queue[:i], n.queue[i+1:]...)
			break
		}
	}
	n.posted = append(n.posted, v)
}

// drain receives what nobody has asked for.
func (n *naive) drain(p *Pair) {
	for range len(n.queue) {
		s := n.queue[0]
		v := naiveRecv{buf: make([]byte, len(s.data)), tag: s.tag, mask: exact, got: &s}
		v.r = p.B.TagRecv(v.buf, s.tag, exact)
		n.queue = n.queue[1:]
		n.posted = append(n.posted, v)
	}
}

func (n *naive) check(t *testing.T, p *Pair, v *naiveRecv, seed uint64) {
	if v.got == nil {
		p.Progress()
		require.False(t, v.r.Done(), "seed %d", seed)
		v.r.Cancel()
		_, err := p.Recv(v.r)
		require.ErrorIs(t, err, ucp.ErrCanceled)
		return
	}
	m, err := p.Recv(v.r)
	require.Equal(t, ucp.Message{Tag: v.got.tag, Len: len(v.got.data)}, m, "seed %d", seed)
	k := min(len(v.buf), len(v.got.data))
	require.Equal(t, string(v.got.data[:k]), string(v.buf[:k]), "seed %d", seed)
	if k < len(v.got.data) {
		require.ErrorIs(t, err, ucp.ErrTruncated)
	} else {
		require.NoError(t, err)
	}
}
