package ucptest

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var moreCases = []Case{
	{"45 bad arguments of transfers", badTransfers},
	{"45 bad arguments of messages", badMessages},
	{"55 a flush ends with the peer", flushPeerGone},
	{"61 registered again, overlapping", memOverlap},
	{"63 nothing lands after the owner's close", memNothingLate},
	{"113 worker close with everything in flight", closeInFlight},
	{"113 context close with everything in flight", closeContext},
}

// badTransfers: each is refused at once, names its operand, and leaves the key
// usable.
func badTransfers(t *testing.T, p *Pair) {
	m, k := p.lend(64)
	own, err := p.Context.Allocate(64, ucp.MemConfig{})
	require.NoError(t, err)
	beside := make([]byte, 8)
	for name, r := range map[string]ucp.Request{
		"put behind the end":             k.Put(beside, 64),
		"put across the end":             k.Put(make([]byte, 9), 56),
		"put longer than the memory":     k.Put(make([]byte, 65), 0),
		"put whose end wraps":            k.Put(beside, ^uint64(0)-3),
		"get across the end":             k.Get(make([]byte, 9), 56),
		"get at no offset":               k.Get(beside, 1<<63),
		"put with memory of another":     k.PutWith(beside, 0, ucp.Opts{Mem: own}),
		"get with memory of another":     k.GetWith(beside, 0, ucp.Opts{Mem: own}),
		"put longer than what Mem spans": k.PutWith(append(own.Bytes()[60:64:64], 0), 0, ucp.Opts{Mem: own}),
	} {
		require.True(t, r.Done(), name)
		require.ErrorIs(t, r.Err(), ucp.ErrInvalid, name)
		var op *ucp.OpError
		require.ErrorAs(t, r.Err(), &op, name)
		assert.NotEmpty(t, op.Op, name)
	}
	for _, off := range []uint64{1, 4, 57, 64, ^uint64(0)} {
		_, err := ucp.AtomicAt[uint64](k, off)
		require.ErrorIs(t, err, ucp.ErrInvalid, "atomic at %d", off)
	}
	require.True(t, zero(m.Bytes()))
	require.NoError(t, p.Wait(k.Put(pattern(64, 1), 0)))
	require.NoError(t, p.Wait(p.AB.Flush()), "a refusal at the call is not a failure of the path")
	require.Equal(t, pattern(64, 1), m.Bytes())
}

func badMessages(t *testing.T, p *Pair) {
	for _, n := range []int{0, 1, 16, 1024} {
		require.NoError(t, p.Wait(p.AB.TagSendV(make([][]byte, n), 3)), "%d empty pieces", n)
		require.Zero(t, p.MustRecv(p.B.TagRecv(nil, 3, exact)).Len)
	}
	both, unknown := ucp.Opts{Flags: ucp.ForceEager | ucp.ForceRendezvous}, ucp.Opts{Flags: 1 << 31}
	for _, refused := range []struct {
		r    ucp.Request
		says string
	}{
		{p.AB.TagSendV(make([][]byte, 1025), 3), "more than 1024 pieces"},
		{p.B.TagRecvV(make([][]byte, 1025), 3, exact).Request, "more than 1024 pieces"},
		{p.AB.TagSendWith([]byte{1}, 3, both), "ForceEager together with ForceRendezvous"},
		{p.AB.AMSendWith(1, nil, []byte{1}, both), "ForceEager together with ForceRendezvous"},
		{p.AB.TagSendWith([]byte{1}, 3, unknown), "unknown Flags"},
		{p.AB.AMSendWith(1, nil, []byte{1}, unknown), "unknown Flags"},
	} {
		require.ErrorIs(t, refused.r.Err(), ucp.ErrInvalid)
		require.ErrorContains(t, refused.r.Err(), refused.says)
		require.Equal(t, refused.r.Err(), p.Wait(refused.r))
		require.Contains(t, refused.r.String(), refused.says)
	}
	require.ErrorIs(t, p.Wait(p.AB.TagSendInline(make([]byte, p.AB.MaxInline()+1), 3)), ucp.ErrTooLong)
	for _, key := range []ucp.Key{nil, {}, make(ucp.Key, 3), make(ucp.Key, 4096)} {
		_, err := p.AB.UnpackKey(key)
		require.ErrorIs(t, err, ucp.ErrInvalid)
	}
	for _, a := range []ucp.Address{nil, {}, make(ucp.Address, 100), make(ucp.Address, 1<<20)} {
		_, err := p.A.NewEndpoint(a, ucp.EndpointConfig{})
		require.ErrorIs(t, err, ucp.ErrInvalid)
	}
	_, err := p.Context.NewWorker(ucp.WorkerConfig{Mode: 99})
	require.ErrorIs(t, err, ucp.ErrInvalid)
	r := p.B.TagRecv(nil, 3, exact)
	require.NoError(t, p.Wait(p.AB.TagSend(nil, 3)))
	require.Zero(t, p.MustRecv(r).Len, "nothing of them was sent")
}

// undriven makes a worker that only its own Close drives.
func (p *Pair) undriven() *ucp.Worker {
	p.T.Helper()
	w, err := p.Context.NewWorker(ucp.WorkerConfig{Mode: p.mode})
	require.NoError(p.T, err)
	return w
}

// flushPeerGone: a flush that waits for a peer which does nothing ends with an
// error when that peer is gone.
func flushPeerGone(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("a worker does not outlive itself")
	}
	victim := p.undriven()
	e := p.Connect(p.A, victim)
	_, last := fill(p, e, 3000)
	fs := []ucp.Request{e.Flush(), p.flushOf(p.A)}
	p.Settle()
	for _, f := range append(fs, last) {
		require.True(t, p.Factory.Takes || !f.Done(), "it is not received")
	}
	require.NoError(t, victim.Close())
	for _, f := range append(fs, last, e.Flush(), p.flushOf(p.A)) {
		if err := p.Wait(f); err != nil || !p.Factory.Takes {
			require.ErrorIs(t, err, ucp.ErrPeerFailed)
		}
	}
	require.NoError(t, e.Close())
	require.NoError(t, p.Wait(p.flushOf(p.A)), "the failure went with its endpoint")
	p.AB.TagSendUint64(3, 1)
	p.MustRecv(p.B.TagRecv(make([]byte, 8), 1, exact))
}

// memOverlap: registrations of the same bytes are independent of each other.
func memOverlap(t *testing.T, p *Pair) {
	mem := make([]byte, 3*4096)
	for name, part := range map[string][]byte{"same": mem, "inside": mem[100:5000], "across pages": mem[4000:8300], "one byte": mem[5:6]} {
		whole, err := p.Context.Register(mem, ucp.MemConfig{})
		require.NoError(t, err, name)
		other, err := p.Context.Register(part, ucp.MemConfig{})
		require.NoError(t, err, name)
		key, kw, ko := other.Key(), p.unpack(whole), p.unpack(other)
		off := ko.Base() - kw.Base()
		require.NoError(t, p.Wait(ko.Put([]byte{7}, 0)), name)
		require.NoError(t, p.Wait(p.AB.Flush()))
		require.Equal(t, byte(7), mem[off], name)
		require.NoError(t, other.Close(), name)
		put := func(k *ucp.RemoteKey) error { return p.Wait(k.Put([]byte{8}, 0)) }
		ko = p.denied(ko, key, name, put)
		kw = p.unpack(whole) // its endpoint may be another
		require.NoError(t, p.Wait(kw.Put([]byte{9}, off)), "the other registration goes on: %s", name)
		require.NoError(t, p.Wait(p.AB.Flush()))
		require.Equal(t, byte(9), mem[off], name)
		again, err := p.Context.Register(part, ucp.MemConfig{})
		require.NoError(t, err, name)
		require.NotEqual(t, other.Key(), again.Key(), "%s: a new registration has a new key", name)
		p.denied(ko, key, name+": the old key stays revoked", put)
		require.NoError(t, p.Wait(p.unpack(again).Put([]byte{10}, 0)), name)
		require.NoError(t, p.Wait(p.AB.Flush()))
		require.Equal(t, byte(10), mem[off], name)
		require.NoError(t, errors.Join(again.Close(), whole.Close()))
	}
}

// memNothingLate: a peer writes without pause while the owner closes; from the
// return of Close on the memory stays as it is.
func memNothingLate(t *testing.T, p *Pair) {
	buf := make([]byte, 4096)
	for round := range scaled(20) {
		m, err := p.Context.Register(buf, ucp.MemConfig{})
		require.NoError(t, err)
		k := p.unpack(m)
		stop, puts := atomic.Bool{}, atomic.Int64{}
		done := make(chan error)
		go func() {
			var err error
			for v := byte(1); err == nil && !stop.Load(); v++ {
				r := k.Put(pattern(4096, v), 0)
				err = r.Wait(p.deadline)
				if v%8 == 0 && err == nil {
					err = p.AB.Flush().Wait(p.deadline)
				}
				puts.Add(1)
			}
			done <- err
		}()
		for puts.Load() < int64(1+round%3) {
			p.driveB()
		}
		require.NoError(t, m.Close())
		clear(buf)
		err = p.drivenBy(done)
		if !errors.Is(err, ucp.ErrRemoteAccess) { // the connection ends with it, and the word of that was faster
			require.ErrorIs(t, err, ucp.ErrPeerFailed)
			p.Until(func() bool { return p.AB.Info().Err != nil })
		}
		require.True(t, zero(buf), "round %d", round)
		stop.Store(true)
		require.NoError(t, k.Close())
		if p.AB.Info().Err != nil { // a transport whose connection ends with it
			require.NoError(t, p.AB.Close())
			p.AB = p.Connect(p.A, p.B)
		}
	}
}

// drivenBy returns the result of a goroutine that uses A, and drives B meanwhile.
func (p *Pair) drivenBy(done <-chan error) error {
	for {
		select {
		case err := <-done:
			return err
		default:
			p.driveB()
		}
	}
}

// inFlight starts one of each kind of operation of w towards a peer that does
// not answer, and gives those that have not ended.
func (p *Pair) inFlight(w, peer *ucp.Worker) (rs []ucp.Request, recvs []ucp.RecvRequest) {
	p.T.Helper()
	e := p.Connect(w, peer)
	_, last := fill(p, e, 3000)
	rs = append(rs, last, e.TagSend(pattern(100_000, 1), 2), e.TagSendInline([]byte{1}, 2), e.TagSendUint64(1, 2), e.Flush(), w.Flush())
	recvs = append(recvs, w.TagRecv(make([]byte, 8), 77, exact), w.TagRecv(make([]byte, 8), 78, exact).Tie(e))
	unread := w.TagRecv(make([]byte, 8), 79, exact)
	unread.Cancel() // ended, and never read
	dropped := w.TagRecv(make([]byte, 8), 80, exact)
	dropped.Drop()
	return rs, recvs
}

// closeInFlight: close of a worker with operations of every kind ends each of
// them once, in bounded time, and the peer goes on.
func closeInFlight(t *testing.T, p *Pair) {
	c, err := p.Factory.open(ucp.Config{CloseTimeout: 200 * time.Millisecond})
	require.NoError(t, err)
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: p.mode})
	require.NoError(t, err)
	peer, want := w, error(nil) // what it sent to itself is taken in while it closes
	if !p.Alone() {
		peer, want = p.undriven(), ucp.ErrClosed
	}
	rs, recvs := p.inFlight(w, peer)
	err = w.Close()
	if want != nil {
		require.ErrorIs(t, err, ucp.ErrTimeout, "it says that not everything got out")
	}
	for i, r := range rs {
		require.True(t, r.Done(), "request %d: %s", i, r)
		if i == 1 && p.Alone() {
			require.ErrorIs(t, r.Wait(p.deadline), ucp.ErrRejected, "announced to a worker that closes")
			continue
		}
		if err := r.Wait(p.deadline); err != nil || i == 1 { // others may have got out meanwhile
			require.ErrorIs(t, err, want, "request %d", i)
		}
	}
	for i, r := range recvs {
		_, err := r.Wait(p.deadline)
		require.ErrorIs(t, err, ucp.ErrClosed, "receive %d", i)
	}
	require.NoError(t, c.Close())
	p.AB.TagSendUint64(3, 1)
	p.MustRecv(p.B.TagRecv(make([]byte, 8), 1, exact))
}

// closeContext is the same for a whole context, with memory, keys and two
// workers that wait for each other.
func closeContext(t *testing.T, p *Pair) {
	c, err := p.Factory.open(ucp.Config{CloseTimeout: 10 * time.Second})
	require.NoError(t, err)
	one, err := c.NewWorker(ucp.WorkerConfig{Mode: p.mode})
	require.NoError(t, err)
	peer := one
	if !p.Alone() {
		peer, err = c.NewWorker(ucp.WorkerConfig{Mode: p.mode})
		require.NoError(t, err)
	}
	m, err := c.Allocate(4096, ucp.MemConfig{})
	require.NoError(t, err)
	k, err := p.Connect(one, peer).UnpackKey(m.Key())
	require.NoError(t, err)
	rs, recvs := p.inFlight(one, peer)
	require.NoError(t, c.Close(), "two workers of a context can empty each other")
	for i, r := range rs {
		require.True(t, r.Done(), "request %d: %s", i, r)
	}
	for i, r := range recvs {
		_, err := r.Wait(p.deadline)
		require.ErrorIs(t, err, ucp.ErrClosed, "receive %d", i)
	}
	require.ErrorIs(t, p.Wait(k.Put([]byte{1}, 0)), ucp.ErrClosed)
	require.Nil(t, m.Bytes())
	require.NoError(t, c.Close(), "twice")
	_, err = c.NewWorker(ucp.WorkerConfig{})
	require.ErrorIs(t, err, ucp.ErrClosed)
}
