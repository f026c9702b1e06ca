package ucptest

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucp"
)

var rndvCases = []Case{
	{"15 rendezvous: length 0, unexpected, truncated, larger buffer", rndvLengths},
	{"16 rendezvous of everything, and of a gigabyte", rndvForced},
	{"18 rendezvous into an unaligned buffer", rndvUnaligned},
	{"rendezvous between memory of the heap and allocated memory", rndvMemory},
	{"19 many rendezvous in both directions", rndvBothWays},
	{"28 one progress call takes in a bounded number of messages", tagBounded},
	{"short messages pass while a long one is fetched", rndvOvertaken},
	{"flush waits for what was announced", rndvFlush},
	{"reverse order under a budget for unexpected messages", budgetReverse},
	{"a spent budget is restored", budgetRestored},
	{"a long message does not overtake short ones that wait", rndvInTurn},
}

var rndv = ucp.Opts{Flags: ucp.ForceRendezvous}

func rndvLengths(t *testing.T, p *Pair) {
	for _, n := range []int{0, 1, 7, 8, 4096, 70_001} {
		for _, room := range []int{0, n / 2, n, n + 5} {
			for _, late := range []bool{false, true} {
				for _, pieces := range []bool{false, true} {
					rndvOne(t, p, n, room, late, pieces)
				}
			}
		}
	}
}

func rndvOne(t *testing.T, p *Pair, n, room int, late, pieces bool) {
	data, buf := pattern(n, 1), make([]byte, n+5)
	var rr ucp.RecvRequest
	if !late {
		rr = p.B.TagRecv(buf[:room], 5, exact)
	}
	var rs ucp.Request
	if pieces && n > 1<<16 {
		rs = p.AB.TagSendV([][]byte{data[:1], nil, data[1 : n/2], data[n/2:]}, 5)
	} else {
		rs = p.AB.TagSendWith(data, 5, rndv)
	}
	if late {
		p.Settle()
		require.False(t, rs.Done(), "it was not fetched")
		rr = p.B.TagRecv(buf[:room], 5, exact)
	}
	m, err := p.Recv(rr)
	require.Equal(t, ucp.Message{Tag: 5, Len: n}, m)
	if room < n {
		require.ErrorIs(t, err, ucp.ErrTruncated)
	} else {
		require.NoError(t, err)
	}
	require.NoError(t, p.Wait(rs), "the sender does not learn of a short buffer")
	k := min(n, room)
	require.True(t, bytes.Equal(data[:k], buf[:k]))
	require.Equal(t, make([]byte, len(buf)-k), buf[k:], "beyond the message or the buffer")
}

// rndvMemory: the data is right whatever memory both sides use, at the lengths around the transports' thresholds.
func rndvMemory(t *testing.T, p *Pair) {
	const room = 3<<20 + 64
	var mem [2][]byte
	for i := range mem {
		m, err := p.Context.Allocate(room, ucp.MemConfig{})
		require.NoError(t, err)
		defer func() { require.NoError(t, m.Close()) }()
		mem[i] = m.Bytes()
	}
	heap := [2][]byte{make([]byte, room), make([]byte, room)}
	lengths := []int{3<<20 + 1}
	for _, n := range []int{4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10} {
		lengths = append(lengths, n-1, n, n+1)
	}
	for k, n := range lengths {
		for kinds := range 4 {
			src, dst := heap[0], heap[1]
			if kinds&1 != 0 {
				src = mem[0]
			}
			if kinds&2 != 0 {
				dst = mem[1]
			}
			src, dst = src[k:][:n], dst[:n+1]
			clear(dst)
			copy(src, pattern(n, byte(4*k+kinds)))
			rr := p.B.TagRecv(dst[:n], 1, exact)
			rs := p.AB.TagSendWith(src, 1, rndv)
			require.Equal(t, n, p.MustRecv(rr).Len)
			require.NoError(t, p.Wait(rs))
			require.True(t, bytes.Equal(src, dst[:n]), "%d bytes", n)
			require.Zero(t, dst[n], "beyond the message")
		}
	}
}

func rndvForced(t *testing.T, p *Pair) {
	for n := range scaled(300) {
		data, buf := pattern(n, byte(n)), make([]byte, n)
		rr := p.B.TagRecv(buf, 1, exact)
		require.NoError(t, p.Wait(p.AB.TagSendWith(data, 1, rndv)))
		require.Equal(t, n, p.MustRecv(rr).Len)
		require.Equal(t, data, buf)
	}
	n := 8 << 20
	if os.Getenv("GOUCX_TEST_LONG") != "" && !p.Factory.Lossy {
		n = 1<<30 + 32
	}
	data, buf := pattern(n, 1), make([]byte, n)
	rs := p.AB.TagSend(data, 1)
	require.Equal(t, n, p.MustRecv(p.B.TagRecv(buf, 1, exact)).Len)
	require.NoError(t, p.Wait(rs))
	require.True(t, bytes.Equal(data, buf))
}

func rndvUnaligned(t *testing.T, p *Pair) {
	const n = 100_003
	data, memory := pattern(n+8, 3), make([]byte, n+16)
	for from := range 4 {
		for to := range 8 {
			clear(memory)
			rr := p.B.TagRecv(memory[to:to+n], 1, exact)
			rs := p.AB.TagSend(data[from:from+n], 1)
			require.Equal(t, n, p.MustRecv(rr).Len)
			require.NoError(t, p.Wait(rs))
			require.True(t, bytes.Equal(data[from:from+n], memory[to:to+n]))
			require.True(t, zero(memory[:to]) && zero(memory[to+n:]), "around the buffer")
		}
	}
}

func rndvBothWays(t *testing.T, p *Pair) {
	n := scaled(60)
	size := 200_000
	var rs []ucp.Request
	var rr []ucp.RecvRequest
	data := pattern(size, 1)
	bufs := make([][]byte, 2*n)
	for i := range bufs {
		bufs[i] = make([]byte, size)
	}
	for i := range n {
		rs = append(rs, p.AB.TagSend(data, ucp.Tag(i)), p.BA.TagSend(data, ucp.Tag(1000+i)))
	}
	for i := n - 1; i >= 0; i-- { // the other way round: all wait, announced
		rr = append(rr, p.B.TagRecv(bufs[2*i], ucp.Tag(i), exact), p.A.TagRecv(bufs[2*i+1], ucp.Tag(1000+i), exact))
	}
	for i := range rr {
		require.Equal(t, size, p.MustRecv(rr[i]).Len)
		require.NoError(t, p.Wait(rs[i]))
	}
	for _, b := range bufs {
		require.True(t, bytes.Equal(data, b))
	}
}

// tagBounded: a flood does not keep one call of Progress busy.
func tagBounded(t *testing.T, p *Pair) {
	w := p.undriven()
	from := p.A
	if p.Alone() {
		from = w
	}
	e := p.Connect(from, w)
	unexpected := func() uint64 { return counter(w, "ucp.unexpected") }
	for i := range uint64(1000) {
		e.TagSendUint64(i, 1)
	}
	for unexpected() < 1000 {
		before := unexpected()
		w.Progress()
		require.LessOrEqual(t, unexpected()-before, uint64(128))
		require.NoError(t, p.deadline.Err(), "waited too long")
		if !p.Alone() {
			p.progressOf(p.A)
		}
	}
}

// rndvOvertaken: what is sent after a long message, with others waiting too, is
// received before the long one has ended.
func rndvOvertaken(t *testing.T, p *Pair) {
	n := 32 << 20
	long, buf, short, got := make([]byte, n), make([]byte, n), make([]byte, 3000), make([]byte, 3000)
	rr := p.B.TagRecv(buf, 1, exact)
	rs := p.AB.TagSend(long, 1)
	for range 10 {
		r := p.B.TagRecv(got, 2, exact)
		p.AB.TagSend(short, 2)
		p.MustRecv(r)
	}
	if p.mode == ucp.ThreadSingle {
		require.False(t, rr.Done(), "10 short messages take less time than 32 MB")
	}
	p.MustRecv(rr)
	require.NoError(t, p.Wait(rs))
}

func rndvFlush(t *testing.T, p *Pair) {
	other := p.Connect(p.A, p.B)
	for _, send := range []func([]byte) ucp.Request{
		func(b []byte) ucp.Request { return p.AB.TagSendWith(b, 1, rndv) },
		func(b []byte) ucp.Request { return p.AB.TagSendSync(b, 1) },
	} {
		rs := send([]byte("announced"))
		flush, all := p.AB.Flush(), p.flushOf(p.A)
		more := other.TagSendWith([]byte("other"), 2, rndv)
		p.Settle()
		require.False(t, rs.Done())
		require.False(t, flush.Done())
		require.False(t, all.Done())
		require.NoError(t, p.Wait(p.Connect(p.A, p.B).Flush()), "an endpoint waits for its own messages alone")
		buf := make([]byte, 16)
		require.Equal(t, 9, p.MustRecv(p.B.TagRecv(buf, 1, exact)).Len)
		require.NoError(t, p.Wait(flush))
		require.NoError(t, p.Wait(all), "what was sent after the flush is none of its")
		require.True(t, rs.Done())
		require.False(t, more.Done())
		p.MustRecv(p.B.TagRecv(buf, 2, exact))
		require.NoError(t, p.Wait(more))
	}
}

// inFlightLimit is more than what lies in the rings or receives of a connection and in
// the queue of its sender.
const inFlightLimit = 3 << 20

// budgeted makes a worker that keeps little, and an endpoint of A to it; over a
// transport that reaches only its own worker it is an endpoint of itself.
func (p *Pair) budgeted(bytes int) (*ucp.Worker, ucp.Endpoint) {
	w := p.newWorker(ucp.WorkerConfig{Mode: p.mode, UnexpectedBudget: bytes})
	from := p.A
	if p.Alone() {
		from = w
	}
	return w, p.Connect(from, w)
}

func budgetReverse(t *testing.T, p *Pair) {
	const budget = 64 << 10
	w, e := p.budgeted(budget)
	n := 10_000
	if race.Enabled {
		n = 3000
	}
	size := func(i int) int { return i * 7 % 2000 }
	data := pattern(2000, 1)
	rs := make([]ucp.Request, n)
	for i := range rs {
		rs[i] = e.TagSend(data[:size(i)], ucp.Tag(i))
	}
	p.Settle()
	buf := make([]byte, 2000)
	for i := n - 1; i >= 0; i-- {
		require.Equal(t, ucp.Message{Tag: ucp.Tag(i), Len: size(i)}, p.MustRecv(w.TagRecv(buf, ucp.Tag(i), exact)))
		require.True(t, bytes.Equal(data[:size(i)], buf[:size(i)]))
	}
	for _, r := range rs {
		require.NoError(t, p.Wait(r))
	}
	peak := counter(w, "ucp.unexpected_peak")
	t.Logf("%d bytes in %d messages, at most %d held", n*1000, n, peak)
	assert.Greater(t, peak, uint64(budget), "it was needed")
	assert.LessOrEqual(t, peak, uint64(budget+inFlightLimit))
	assert.NotZero(t, counter(w, "ucp.throttled"))
}

// budgetRestored: when the kept messages are received, short ones are sent along
// again, and the sender's requests end at the call.
func budgetRestored(t *testing.T, p *Pair) {
	w, e := p.budgeted(8 << 10)
	buf, got := make([]byte, 2000), make([]byte, 2000)
	for range 3 {
		var rs []ucp.Request
		announced := func() bool {
			rs = append(rs, e.TagSend(buf, 1))
			p.Settle()
			return !rs[len(rs)-1].Done()
		}
		for range 2000 {
			if announced() {
				break
			}
		}
		require.False(t, rs[len(rs)-1].Done(), "in the end the sender keeps it")
		for range rs {
			p.MustRecv(w.TagRecv(got, 1, exact))
		}
		along := false
		for k := 0; k < 100 && !along; k++ { // the receiver's grant may still be under way
			along = !announced()
			p.MustRecv(w.TagRecv(got, 1, exact))
		}
		require.True(t, along, "it is sent along")
		for _, r := range rs {
			require.NoError(t, p.Wait(r))
		}
	}
}

// rndvInTurn sends a short message and a long one, with the same tag, behind what has
// messages wait: a get in more parts than may be under way, or a fence behind an
// atomic that another lane, or the owner's worker, carries out.
func rndvInTurn(t *testing.T, p *Pair) {
	m, k := p.lend(4 << 20)
	copy(m.Bytes(), pattern(4<<20, 3))
	got, buf := make([]byte, 4<<20), make([]byte, 100_000)
	registered, err := p.Context.Register(make([]byte, 64), ucp.MemConfig{})
	require.NoError(t, err)
	word, err := ucp.AtomicAt[uint64](p.unpack(registered), 0)
	if err != nil {
		require.ErrorIs(t, err, ucp.ErrUnsupported)
		word = atomicAt[uint64](t, k, 0)
	}
	for i := range scaled(40) {
		var get ucp.Request
		fetch := ucp.Fetch[uint64]{}
		if i%4 == 0 {
			clear(got)
			get = k.Get(got, 0)
		} else {
			fetch = word.FetchXor(1)
			p.AB.Fence()
		}
		sends := []ucp.Request{p.AB.TagSend(pattern(12, 1), 7), p.AB.TagSend(pattern(len(buf), 2), 7), p.AB.TagSendSync(pattern(12, 1), 7)}
		for _, n := range []int{12, len(buf), 12} {
			require.Equal(t, n, p.MustRecv(p.B.TagRecv(buf, 7, exact)).Len, "round %d", i)
		}
		for _, s := range sends {
			require.NoError(t, p.Wait(s))
		}
		require.NoError(t, p.Wait(get))
		_, err := p.value(fetch)
		require.NoError(t, err)
		require.True(t, i%4 != 0 || bytes.Equal(m.Bytes()[8:], got[8:]))
	}
}
