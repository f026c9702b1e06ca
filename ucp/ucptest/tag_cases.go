package ucptest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// The numbers are those of the conformance list drawn from UCX's own tests.
var tagCases = []Case{
	{"1 unexpected, masked: full tag and length", tagUnexpectedMask},
	{"2 expected", tagExpected},
	{"3 dropped request still delivers", tagDropped},
	{"5 pieces", tagPieces},
	{"5 pieces on both sides", tagVectors},
	{"5 pieces of which the receive has too few", tagVectorShort},
	{"6 receives again into the same buffer", tagAgain},
	{"8 several receives of one mask in order", tagSeveral},
	{"9 a thousand unexpected", tagThousand},
	{"10 a request let go in its own callback", tagLetGo},
	{"11 truncation", tagTruncation},
	{"12 zero length", tagZero},
	{"29 cancel of an unmatched receive", tagCancel},
	{"31 cancel twice, cancel late", tagCancelLate},
	{"33 wildcard and exact in order", tagWildcardOrder},
	{"35 the choice of masks changes no result", tagMasks},
	{"inline and scalar forms", tagForms},
	{"a result is consumed once", tagStale},
	{"notify", tagNotify},
}

func tagUnexpectedMask(t *testing.T, p *Pair) {
	r := p.AB.TagSend([]byte("payload"), 0x1234_5678)
	p.Settle()
	buf := make([]byte, 32)
	m := p.MustRecv(p.B.TagRecv(buf, 0x5678, 0xFFFF))
	assert.Equal(t, ucp.Message{Tag: 0x1234_5678, Len: 7}, m)
	assert.Equal(t, "payload", string(buf[:7]))
	assert.Equal(t, make([]byte, 25), buf[7:], "nothing beyond the message is written")
	require.NoError(t, p.Wait(r))
}

func tagExpected(t *testing.T, p *Pair) {
	for n := range scaled(70) {
		buf := make([]byte, n)
		r := p.B.TagRecv(buf, 3, exact)
		p.Settle()
		require.False(t, r.Done(), "nothing was sent")
		want := pattern(n, byte(n))
		require.NoError(t, p.Wait(p.AB.TagSend(want, 3)))
		require.Equal(t, ucp.Message{Tag: 3, Len: n}, p.MustRecv(r))
		require.Equal(t, want, buf)
	}
}

func tagDropped(t *testing.T, p *Pair) {
	const n = 500 // more than the transport holds: some requests are on their way when dropped
	for i := range n {
		b := make([]byte, 3000)
		binary.LittleEndian.PutUint32(b, uint32(i))
		p.AB.TagSend(b, 9)
	}
	buf := make([]byte, 3000)
	for i := range n {
		p.MustRecv(p.B.TagRecv(buf, 9, exact))
		require.Equal(t, uint32(i), binary.LittleEndian.Uint32(buf))
	}
}

func tagPieces(t *testing.T, p *Pair) {
	for _, sizes := range [][]int{
		{}, {0}, {1}, {5, 0, 7}, {0, 0, 0}, {1000, 1, 4000}, {20000, 0, 30000, 3}, {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8},
	} {
		var ps [][]byte
		var want []byte
		for i, n := range sizes {
			b := pattern(n, byte(i))
			ps, want = append(ps, b), append(want, b...)
		}
		for _, late := range []bool{false, true} {
			buf := make([]byte, len(want))
			var rr ucp.RecvRequest
			if !late {
				rr = p.B.TagRecv(buf, 4, exact)
			}
			rs := p.AB.TagSendV(ps, 4)
			if late {
				p.Settle()
				rr = p.B.TagRecv(buf, 4, exact)
			}
			require.Equal(t, len(want), p.MustRecv(rr).Len)
			require.NoError(t, p.Wait(rs))
			require.Equal(t, string(want), string(buf))
		}
	}
	require.ErrorIs(t, p.Wait(p.AB.TagSendV(make([][]byte, 1025), 4)), ucp.ErrInvalid)
}

// cutUp cuts b into n pieces at random places.
func cutUp(r *rand.Rand, b []byte, n int) [][]byte {
	cuts := make([]int, n+1)
	for i := 1; i < n; i++ {
		cuts[i] = r.IntN(len(b) + 1)
	}
	cuts[n] = len(b)
	slices.Sort(cuts)
	ps := make([][]byte, n)
	for i := range ps {
		ps[i] = b[cuts[i]:cuts[i+1]:cuts[i+1]]
	}
	return ps
}

// tagVectors: messages that are sent and received in pieces of any length, by every form of
// send, expected, unexpected and as matched messages.
func tagVectors(t *testing.T, p *Pair) {
	r := rand.New(rand.NewPCG(5, 1024))
	for i, n := range []int{0, 1, 8, 9, 100, 3000, 20_000, 70_000, 300_000, 1 << 20} {
		data := pattern(n, byte(i))
		forms := map[string]func() ucp.Request{
			"pieces":     func() ucp.Request { return p.AB.TagSendV(cutUp(r, data, 1+r.IntN(1024)), 4) },
			"a buffer":   func() ucp.Request { return p.AB.TagSend(data, 4) },
			"sync":       func() ucp.Request { return p.AB.TagSendSync(data, 4) },
			"eager":      func() ucp.Request { return p.AB.TagSendWith(data, 4, ucp.Opts{Flags: ucp.ForceEager}) },
			"rendezvous": func() ucp.Request { return p.AB.TagSendWith(data, 4, rndv) },
		}
		for name, send := range forms {
			for _, when := range []string{"before", "late", "matched"} {
				buf := make([]byte, n+5)
				ps := cutUp(r, buf[:n], []int{1, 2, 1 + r.IntN(1024), 1024}[r.IntN(4)])
				var rr ucp.RecvRequest
				if when == "before" {
					rr = p.B.TagRecvV(ps, 4, exact)
				}
				rs := send()
				if when != "before" {
					p.Until(func() bool { _, ok := p.B.TagProbe(4, exact); return ok })
				}
				switch when {
				case "late":
					rr = p.B.TagRecvV(ps, 4, exact)
				case "matched":
					m, ok := p.B.TagMprobe(4, exact)
					require.True(t, ok)
					require.ErrorIs(t, m.RecvV(make([][]byte, 1025)).Err(), ucp.ErrInvalid)
					rr = m.RecvV(ps)
				}
				require.Equal(t, ucp.Message{Tag: 4, Len: n}, p.MustRecv(rr), "%d bytes, %s, %s", n, name, when)
				require.NoError(t, p.Wait(rs))
				require.True(t, bytes.Equal(data, buf[:n]), "%d bytes, %s, %s", n, name, when)
				require.Equal(t, make([]byte, 5), buf[n:], "beyond the pieces")
			}
		}
	}
}

// tagVectorShort: a message that is longer than the pieces fills them, and is truncated. The
// library does not write to the pieces of a canceled receive.
func tagVectorShort(t *testing.T, p *Pair) {
	r := rand.New(rand.NewPCG(5, 17))
	for _, n := range []int{1, 8, 100, 20_000, 300_000} {
		for _, late := range []bool{false, true} {
			data, buf := pattern(n, 1), make([]byte, n)
			room := n / 2
			ps := cutUp(r, buf[:room], 7)
			var rr ucp.RecvRequest
			if !late {
				rr = p.B.TagRecvV(ps, 4, exact)
			}
			rs := p.AB.TagSend(data, 4)
			if late {
				p.Until(func() bool { _, ok := p.B.TagProbe(4, exact); return ok })
				rr = p.B.TagRecvV(ps, 4, exact)
			}
			m, err := p.Recv(rr)
			require.ErrorIs(t, err, ucp.ErrTruncated)
			require.Equal(t, n, m.Len)
			require.NoError(t, p.Wait(rs))
			require.True(t, bytes.Equal(data[:room], buf[:room]))
			require.Equal(t, make([]byte, n-room), buf[room:])
		}
	}
	rr := p.B.TagRecvV([][]byte{make([]byte, 4), make([]byte, 4)}, 4, exact)
	rr.Cancel()
	_, err := p.Recv(rr)
	require.ErrorIs(t, err, ucp.ErrCanceled)
	rr = p.B.TagRecvV(nil, 4, exact)
	require.NoError(t, p.Wait(p.AB.TagSend(nil, 4)))
	require.Zero(t, p.MustRecv(rr).Len)
}

func tagAgain(t *testing.T, p *Pair) {
	buf := make([]byte, 8)
	for i := range uint64(100) {
		r := p.B.TagRecv(buf, 1, exact)
		p.AB.TagSendUint64(i, 1)
		p.MustRecv(r)
		require.Equal(t, i, binary.LittleEndian.Uint64(buf))
	}
}

func tagSeveral(t *testing.T, p *Pair) {
	const n = 20
	var rs [n]ucp.RecvRequest
	var bufs [n][8]byte
	for i := range rs {
		rs[i] = p.B.TagRecv(bufs[i][:], 0x10, 0xF0)
	}
	for i := range uint64(n) {
		p.AB.TagSendUint64(i, ucp.Tag(0x10+i%16))
	}
	for i := range rs {
		m := p.MustRecv(rs[i])
		require.Equal(t, ucp.Tag(0x10+i%16), m.Tag)
		require.Equal(t, uint64(i), binary.LittleEndian.Uint64(bufs[i][:]))
	}
}

func tagThousand(t *testing.T, p *Pair) {
	const n, tags = 1000, 7
	for i := range uint64(n) {
		p.AB.TagSendUint64(i, ucp.Tag(i%tags))
	}
	p.Settle()
	buf := make([]byte, 8)
	for tag := range uint64(tags) {
		for i := tag; i < n; i += tags {
			p.MustRecv(p.B.TagRecv(buf, ucp.Tag(tag), exact))
			require.Equal(t, i, binary.LittleEndian.Uint64(buf), "order of tag %d", tag)
		}
	}
}

func tagTruncation(t *testing.T, p *Pair) {
	for _, n := range []int{2, 9, 100, 5000, 70_000} {
		for _, room := range []int{0, 1, n / 2, n - 1} {
			for _, late := range []bool{false, true} {
				data, buf := pattern(n, 1), make([]byte, n)
				var rr ucp.RecvRequest
				if !late {
					rr = p.B.TagRecv(buf[:room], 5, exact)
				}
				rs := p.AB.TagSend(data, 5)
				if late {
					p.Settle()
					rr = p.B.TagRecv(buf[:room], 5, exact)
				}
				m, err := p.Recv(rr)
				require.ErrorIs(t, err, ucp.ErrTruncated)
				require.Equal(t, ucp.Message{Tag: 5, Len: n}, m)
				require.Equal(t, data[:room], buf[:room])
				require.Equal(t, make([]byte, n-room), buf[room:], "beyond the buffer")
				require.NoError(t, p.Wait(rs), "the sender does not learn of it")
			}
		}
	}
	// The next message is not disturbed.
	buf := make([]byte, 8)
	p.AB.TagSendUint64(42, 5)
	p.MustRecv(p.B.TagRecv(buf, 5, exact))
	require.Equal(t, byte(42), buf[0])
}

func tagZero(t *testing.T, p *Pair) {
	for _, empty := range [][]byte{nil, {}} {
		r := p.B.TagRecv(nil, 6, exact)
		require.NoError(t, p.Wait(p.AB.TagSend(empty, 6)))
		require.Equal(t, ucp.Message{Tag: 6}, p.MustRecv(r))
		require.NoError(t, p.Wait(p.AB.TagSend(empty, 6)))
		p.Settle()
		require.Equal(t, ucp.Message{Tag: 6}, p.MustRecv(p.B.TagRecv(make([]byte, 4), 6, exact)))
	}
	p.AB.TagSend([]byte{1}, 6)
	m, err := p.Recv(p.B.TagRecv(nil, 6, exact))
	require.ErrorIs(t, err, ucp.ErrTruncated)
	require.Equal(t, 1, m.Len)
}

func tagCancel(t *testing.T, p *Pair) {
	buf := []byte("untouched")
	r := p.B.TagRecv(buf, 7, exact)
	r.Cancel()
	_, err := p.Recv(r)
	require.ErrorIs(t, err, ucp.ErrCanceled)
	require.NoError(t, p.Wait(p.AB.TagSend([]byte("something"), 7)))
	p.Settle()
	require.Equal(t, "untouched", string(buf))
	got := make([]byte, 9)
	p.MustRecv(p.B.TagRecv(got, 7, exact))
	require.Equal(t, "something", string(got))
}

func tagCancelLate(t *testing.T, p *Pair) {
	buf := make([]byte, 8)
	r := p.B.TagRecv(buf, 7, exact)
	p.AB.TagSendUint64(1, 7)
	p.Until(r.Done)
	r.Cancel()
	r.Cancel()
	require.Equal(t, 8, p.MustRecv(r).Len)
	r.Cancel()
	q := p.B.TagRecv(buf, 8, exact)
	q.Cancel()
	q.Cancel()
	_, err := p.Recv(q)
	require.ErrorIs(t, err, ucp.ErrCanceled)
	ucp.Request{}.Cancel()
}

func tagWildcardOrder(t *testing.T, p *Pair) {
	var bufs [4][8]byte
	rs := [4]ucp.RecvRequest{
		p.B.TagRecv(bufs[0][:], 11, exact),
		p.B.TagRecv(bufs[1][:], 0, 0),
		p.B.TagRecv(bufs[2][:], 11, exact),
		p.B.TagRecv(bufs[3][:], 10, ^ucp.Tag(1)),
	}
	for i := range uint64(4) {
		p.AB.TagSendUint64(i, 11)
	}
	for i := range rs {
		p.MustRecv(rs[i])
		require.Equal(t, byte(i), bufs[i][0], "receive %d", i)
	}
}

func tagForms(t *testing.T, p *Pair) {
	buf := make([]byte, 1024)
	limit := p.AB.MaxInline()
	require.GreaterOrEqual(t, limit, 8)
	for _, n := range []int{0, 1, 8, limit} {
		data := pattern(n, 3)
		r := p.AB.TagSendInline(data, 2)
		clear(data) // it may be reused
		require.Equal(t, n, p.MustRecv(p.B.TagRecv(buf, 2, exact)).Len)
		require.Equal(t, pattern(n, 3), buf[:n])
		require.NoError(t, p.Wait(r))
	}
	require.ErrorIs(t, p.Wait(p.AB.TagSendInline(buf[:limit+1], 2)), ucp.ErrTooLong)
	p.AB.TagSendUint64(0x0102030405060708, 2)
	require.Equal(t, 8, p.MustRecv(p.B.TagRecv(buf, 2, exact)).Len)
	require.Equal(t, []byte{8, 7, 6, 5, 4, 3, 2, 1}, buf[:8])
	p.AB.TagSendWith([]byte("with"), 2, ucp.Opts{})
	require.Equal(t, 4, p.MustRecv(p.B.TagRecv(buf, 2, exact)).Len)
	// More inline sends than the transport holds: copies wait.
	n := scaled(3000)
	var data [16]byte
	for i := range n {
		binary.LittleEndian.PutUint64(data[:], uint64(i))
		p.AB.TagSendInline(data[:], 2)
	}
	for i := range n {
		p.MustRecv(p.B.TagRecv(buf, 2, exact))
		require.Equal(t, uint64(i), binary.LittleEndian.Uint64(buf))
	}
}

func tagStale(t *testing.T, p *Pair) {
	p.AB.TagSendUint64(1, 2)
	r := p.B.TagRecv(make([]byte, 8), 2, exact)
	p.MustRecv(r)
	_, err := r.Wait(p.deadline)
	require.ErrorIs(t, err, ucp.ErrStale)
	require.True(t, r.Done())
	q := p.B.TagRecv(make([]byte, 8), 2, exact)
	q.Drop()
	p.AB.TagSendUint64(2, 2)
	p.Until(q.Done)
	_, err = q.Wait(p.deadline)
	require.ErrorIs(t, err, ucp.ErrStale)
}

func tagNotify(t *testing.T, p *Pair) {
	got := make(chan ucp.Completion, 4)
	f := func(c ucp.Completion) { got <- c }
	r := p.B.TagRecv(make([]byte, 8), 2, exact)
	require.True(t, r.Notify(f, 77))
	p.AB.TagSendUint64(1, 2)
	p.Until(func() bool { return len(got) == 1 })
	assert.Equal(t, ucp.Completion{Cookie: 77, Message: ucp.Message{Tag: 2, Len: 8}}, <-got)
	_, err := r.Wait(p.deadline)
	assert.ErrorIs(t, err, ucp.ErrStale, "the callback consumed it")

	assert.False(t, ucp.Request{}.Notify(f, 1), "ended already")
	q := p.B.TagRecv(make([]byte, 2), 2, exact)
	require.True(t, q.Notify(f, 78))
	p.AB.TagSendUint64(1, 2)
	p.Until(func() bool { return len(got) == 1 })
	c := <-got
	assert.ErrorIs(t, c.Err, ucp.ErrTruncated)
	assert.Equal(t, 8, c.Len)
}

// tagLetGo: the callback looks at its own request, cancels and drops it, and
// posts another operation, which has its slot.
func tagLetGo(t *testing.T, p *Pair) {
	var r ucp.RecvRequest
	buf, done := make([]byte, 8), make(chan ucp.RecvRequest, 1)
	r = p.B.TagRecv(buf, 2, exact)
	require.True(t, r.Notify(func(c ucp.Completion) {
		assert.NoError(t, c.Err)
		assert.True(t, r.Done())
		r.Cancel()
		r.Drop()
		done <- p.B.TagRecv(buf, 3, exact)
	}, 0))
	p.AB.TagSendUint64(1, 2)
	p.Until(func() bool { return len(done) == 1 })
	next := <-done
	r.Cancel() // of another's slot, by an id that has passed
	p.AB.TagSendUint64(2, 3)
	require.Equal(t, ucp.Message{Tag: 3, Len: 8}, p.MustRecv(next))
	require.Equal(t, byte(2), buf[0])
}

// tagMasks: one message after the other, taken through masks that all fit it, is
// what exact tags give.
func tagMasks(t *testing.T, p *Pair) {
	masks := []ucp.Tag{exact, 0, 0xff, 0xff00, ^ucp.Tag(0xff)}
	buf := make([]byte, 8)
	for _, late := range []bool{false, true} {
		for i := range uint64(100) {
			tag, mask := ucp.Tag(0x1200+i%3), masks[i%5]
			var r ucp.RecvRequest
			if !late {
				r = p.B.TagRecv(buf, tag, mask)
			}
			p.AB.TagSendUint64(i, tag)
			if late {
				r = p.B.TagRecv(buf, tag, mask)
			}
			require.Equal(t, ucp.Message{Tag: tag, Len: 8}, p.MustRecv(r))
			require.Equal(t, i, binary.LittleEndian.Uint64(buf))
		}
	}
}
