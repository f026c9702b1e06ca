package ucptest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var tagOracleCases = []Case{
	{"20 random operations against a naive matcher", tagOracle},
}

// marker is a tag bit that no random message has and every random mask looks at.
const marker = ucp.Tag(1) << 40

// naive is a matcher that is obviously right: it walks slices. Messages of one
// sender are matched in the order of sending, so what is compared with it only
// has to know what has arrived, and barrier sees to that.
type naive struct {
	t      *testing.T
	p      *Pair
	r      *rand.Rand
	seed   uint64
	posted []*naiveRecv // matched ones too
	queue  []*naiveSend // unmatched
	sends  []*naiveSend
}

type naiveRecv struct {
	r         ucp.RecvRequest
	buf       []byte
	tag, mask ucp.Tag
	got       *naiveSend
	canceled  bool
}

type naiveSend struct {
	r        ucp.Request
	tag      ucp.Tag
	data     []byte
	sync     bool
	canceled bool // its receive was
	dropped  bool
}

func tagOracle(t *testing.T, p *Pair) {
	for seed := range uint64(scaled(12)) {
		n := naive{t: t, p: p, r: rand.New(rand.NewPCG(seed, 2)), seed: seed}
		for range 250 {
			n.step()
		}
		n.finish()
	}
}

func (n *naive) step() {
	switch k := n.r.IntN(20); {
	case k < 8:
		n.send()
	case k < 15:
		n.recv()
	case k < 17:
		n.probe()
	case k < 19:
		n.take()
	default:
		n.cancel()
	}
	if n.r.IntN(3) == 0 {
		n.p.Progress()
	}
}

func (n *naive) pattern() (tag, mask ucp.Tag) {
	return ucp.Tag(n.r.IntN(4)), []ucp.Tag{exact, exact, marker, ^ucp.Tag(1)}[n.r.IntN(4)]
}

func (n *naive) send() {
	tag, size := ucp.Tag(n.r.IntN(4)), []int{0, 8, 8, 60, 2000, 9000, 100_000}[n.r.IntN(7)]
	s := &naiveSend{tag: tag, data: pattern(size, byte(n.r.Uint32()))}
	switch n.r.IntN(6) {
	case 0:
		s.r, s.sync = n.p.AB.TagSendSync(s.data, tag), true
	case 1:
		s.r = n.p.AB.TagSendWith(s.data, tag, ucp.Opts{Flags: ucp.ForceRendezvous})
	case 2:
		s.r = n.p.AB.TagSendWith(s.data, tag, ucp.Opts{Flags: ucp.ForceEager})
	case 3:
		half := size / 3
		s.r = n.p.AB.TagSendV([][]byte{s.data[:half], nil, s.data[half:]}, tag)
	default:
		s.r = n.p.AB.TagSend(s.data, tag)
	}
	n.sends = append(n.sends, s)
	for _, v := range n.posted {
		if v.got == nil && !v.canceled && (v.tag^tag)&v.mask == 0 {
			v.got = s
			return
		}
	}
	n.queue = append(n.queue, s)
}

// oldest gives the index of the queued message that fits, -1 where none does.
func (n *naive) oldest(tag, mask ucp.Tag) int {
	return slices.IndexFunc(n.queue, func(s *naiveSend) bool { return (s.tag^tag)&mask == 0 })
}

// pop takes the i-th queued message out, nil for -1.
func (n *naive) pop(i int) *naiveSend {
	if i < 0 {
		return nil
	}
	s := n.queue[i]
	n.queue = slices.Delete(n.queue, i, i+1)
	return s
}

func (n *naive) recv() {
	tag, mask := n.pattern()
	v := &naiveRecv{buf: make([]byte, []int{0, 8, 4096, 200_000}[n.r.IntN(4)]), tag: tag, mask: mask}
	v.r = n.p.B.TagRecv(v.buf, tag, mask)
	v.got = n.pop(n.oldest(tag, mask))
	n.posted = append(n.posted, v)
}

// barrier returns when everything sent before has arrived, or its announcement.
func (n *naive) barrier() {
	r := n.p.B.TagRecv(nil, marker, exact)
	n.p.AB.TagSend(nil, marker)
	n.p.MustRecv(r)
}

func (n *naive) probe() {
	n.barrier()
	tag, mask := n.pattern()
	m, ok := n.p.B.TagProbe(tag, mask)
	i := n.oldest(tag, mask)
	require.Equal(n.t, i >= 0, ok, "seed %d", n.seed)
	if ok {
		require.Equal(n.t, ucp.Message{Tag: n.queue[i].tag, Len: len(n.queue[i].data)}, m, "seed %d", n.seed)
	}
}

func (n *naive) take() {
	n.barrier()
	tag, mask := n.pattern()
	k, ok := n.p.B.TagMprobe(tag, mask)
	s := n.pop(n.oldest(tag, mask))
	require.Equal(n.t, s != nil, ok, "seed %d", n.seed)
	if !ok {
		return
	}
	require.Equal(n.t, ucp.Message{Tag: s.tag, Len: len(s.data)}, k.Message, "seed %d", n.seed)
	if n.r.IntN(4) == 0 {
		k.Drop()
		s.dropped = true
		return
	}
	v := &naiveRecv{buf: make([]byte, n.r.IntN(2)*200_000), got: s}
	v.r = k.Recv(v.buf)
	n.posted = append(n.posted, v)
}

func (n *naive) cancel() {
	n.barrier()
	if len(n.posted) == 0 {
		return
	}
	v := n.posted[n.r.IntN(len(n.posted))]
	v.r.Cancel()
	v.canceled = true
	if v.got != nil {
		v.got.canceled = true // where it was not through
	}
}

// finish receives what no receive has matched and checks every outcome.
func (n *naive) finish() {
	for len(n.queue) > 0 {
		s := n.pop(0)
		v := &naiveRecv{buf: make([]byte, len(s.data)), got: s}
		v.r = n.p.B.TagRecv(v.buf, s.tag, exact)
		n.posted = append(n.posted, v)
	}
	for _, v := range n.posted {
		n.checkRecv(v)
	}
	for _, s := range n.sends {
		err := n.p.Wait(s.r)
		switch {
		case err == nil:
		case s.dropped:
			require.ErrorIs(n.t, err, ucp.ErrRejected, "seed %d", n.seed)
		default:
			require.True(n.t, s.canceled, "seed %d: %v", n.seed, err)
			require.ErrorIs(n.t, err, ucp.ErrCanceled, "seed %d", n.seed)
		}
		if s.dropped && s.sync {
			require.Error(n.t, err, "seed %d", n.seed)
		}
	}
}

func (n *naive) checkRecv(v *naiveRecv) {
	if v.got == nil && !v.canceled {
		n.p.Progress()
		require.False(n.t, v.r.Done(), "seed %d", n.seed)
		v.r.Cancel()
	}
	m, err := n.p.Recv(v.r)
	if v.got == nil || v.canceled && errors.Is(err, ucp.ErrCanceled) {
		require.ErrorIs(n.t, err, ucp.ErrCanceled, "seed %d", n.seed)
		return
	}
	require.Equal(n.t, ucp.Message{Tag: v.got.tag, Len: len(v.got.data)}, m, "seed %d", n.seed)
	k := min(len(v.buf), len(v.got.data))
	require.Equal(n.t, string(v.got.data[:k]), string(v.buf[:k]), "seed %d", n.seed)
	if k < len(v.got.data) {
		require.ErrorIs(n.t, err, ucp.ErrTruncated)
	} else {
		require.NoError(n.t, err)
	}
}
