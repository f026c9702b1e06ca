package ucptest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var tagCancelCases = []Case{
	{"30 cancel of a matched receive gives the buffer back", cancelMatched},
	{"cancel of a receive that fragments fill", cancelFragments},
	{"cancel of what was announced and not asked for", cancelAnnounced},
	{"cancel of a send that is under way", cancelUnderWay},
	{"cancel of a sync send", cancelSync},
	{"cancel of sends that wait for room", cancelQueued},
	{"31 cancel of a rendezvous, twice and late", cancelRndvLate},
	{"everything towards a peer that does nothing can be canceled", cancelStopped},
}

// next sends and receives one more message: what was canceled left nothing.
func (p *Pair) next(e ucp.Endpoint, w *ucp.Worker) {
	p.T.Helper()
	for _, n := range []int{4, 70_000, 3} {
		data, buf := pattern(n, 9), make([]byte, n)
		rs := e.TagSend(data, 99)
		require.Equal(p.T, n, p.MustRecv(w.TagRecv(buf, 99, exact)).Len)
		require.Equal(p.T, string(data), string(buf))
		require.NoError(p.T, p.Wait(rs))
	}
}

func cancelMatched(t *testing.T, p *Pair) {
	p.next(p.AB, p.B) // connected
	n := 16 << 20
	for steps := range 6 {
		data, buf := pattern(n, 1), make([]byte, n)
		rr := p.B.TagRecv(buf, 1, exact)
		rs := p.AB.TagSend(data, 1)
		for range steps * 5 {
			p.Progress()
		}
		rr.Cancel()
		p.canceled(rr)
		_, err := rr.Wait(p.deadline)
		if err != nil {
			require.ErrorIs(t, err, ucp.ErrCanceled)
			clear(buf)
		}
		p.Until(func() bool {
			dropAll(p, 1) // where it was not matched it is still there, or comes
			return rs.Done()
		})
		if errs := p.Wait(rs); err != nil {
			sent := errs == nil && (p.mode == ucp.ThreadMulti || p.Factory.Reads) // the last of it was on its way
			require.True(t, sent || errors.Is(errs, ucp.ErrCanceled) || errors.Is(errs, ucp.ErrRejected), "%v", errs)
			require.True(t, zero(buf), "nothing is written later")
		} else {
			require.NoError(t, errs)
		}
		p.next(p.AB, p.B)
	}
}

// dropAll takes and drops what was sent to B under tag before and was not received.
func dropAll(p *Pair, tag ucp.Tag) {
	p.next(p.AB, p.B) // behind it, so that it has arrived
	for {
		k, ok := p.B.TagMprobe(tag, exact)
		if !ok {
			return
		}
		k.Drop()
	}
}

func cancelFragments(t *testing.T, p *Pair) {
	if p.mode == ucp.ThreadMulti {
		t.Skip("with the peer driven all the time a message does not stay by half")
	}
	n := 1 << 20
	buf := make([]byte, n)
	rr := p.B.TagRecv(buf, 1, exact)
	rs := p.AB.TagSendWith(pattern(n, 1), 1, ucp.Opts{Flags: ucp.ForceEager})
	p.Progress()
	require.False(t, rr.Done())
	rr.Cancel()
	_, err := rr.Wait(p.deadline)
	require.ErrorIs(t, err, ucp.ErrCanceled)
	clear(buf)
	require.NoError(t, p.Wait(rs), "the sender does not learn of it")
	p.Settle()
	require.True(t, zero(buf))
	p.next(p.AB, p.B)
}

func cancelAnnounced(t *testing.T, p *Pair) {
	for _, n := range []int{0, 5, 100_000} {
		r := p.AB.TagSendWith(pattern(n, 1), 1, rndv)
		kept := p.AB.TagSendWith([]byte("kept"), 1, rndv)
		p.probe(1, exact)
		r.Cancel()
		require.ErrorIs(t, r.Err(), ucp.ErrCanceled)
		p.Until(func() bool {
			m, ok := p.B.TagProbe(1, exact)
			return ok && m.Len == 4
		})
		buf := make([]byte, 8)
		require.Equal(t, 4, p.MustRecv(p.B.TagRecv(buf, 1, exact)).Len)
		require.NoError(t, p.Wait(kept))

		// A taken one ends with its sender too.
		r = p.AB.TagSendWith(pattern(n, 1), 1, rndv)
		p.probe(1, exact)
		k, ok := p.B.TagMprobe(1, exact)
		require.True(t, ok)
		r.Cancel()
		p.next(p.AB, p.B) // behind it
		m, err := p.Recv(k.Recv(buf))
		require.ErrorIs(t, err, ucp.ErrCanceled)
		require.Equal(t, n, m.Len)
	}
	p.next(p.AB, p.B)
}

func cancelUnderWay(t *testing.T, p *Pair) {
	n := 16 << 20
	for _, flags := range []ucp.Flags{ucp.ForceRendezvous, ucp.ForceEager} {
		for steps := range 6 {
			rr := p.B.TagRecv(make([]byte, n), 1, exact)
			rs := p.AB.TagSendWith(pattern(n, 1), 1, ucp.Opts{Flags: flags})
			for range steps * 3 {
				p.Progress()
			}
			rs.Cancel()
			p.canceled(rs)
			if rs.Err() != nil {
				require.ErrorIs(t, rs.Err(), ucp.ErrCanceled)
			}
			p.Settle()
			if p.mode == ucp.ThreadSingle && !rr.Done() {
				// Nothing had gone out: the receive waits for another.
				rr.Cancel()
			}
			rr.Cancel()
			if _, err := p.Recv(rr); err != nil {
				require.ErrorIs(t, err, ucp.ErrCanceled)
			}
			dropAll(p, 1)
			p.next(p.AB, p.B)
		}
	}
}

func cancelSync(t *testing.T, p *Pair) {
	r := p.AB.TagSendSync([]byte("sync"), 1)
	p.probe(1, exact)
	r.Cancel()
	require.ErrorIs(t, r.Err(), ucp.ErrCanceled)
	buf := make([]byte, 8)
	require.Equal(t, 4, p.MustRecv(p.B.TagRecv(buf, 1, exact)).Len, "it had gone")
	p.next(p.AB, p.B)
	require.NoError(t, p.Wait(p.AB.Flush()))
}

func cancelQueued(t *testing.T, p *Pair) {
	if p.mode == ucp.ThreadMulti {
		t.Skip("with the peer driven all the time nothing waits")
	}
	data := pattern(3000, 1)
	var sent []ucp.Request
	for len(sent) < 100_000 {
		r := p.AB.TagSend(data, 1)
		sent = append(sent, r)
		if !r.Done() {
			break
		}
	}
	waiting := []ucp.Request{
		p.AB.TagSend(data, 2), p.AB.TagSendSync(data, 2), p.AB.TagSendWith(data, 2, rndv), p.AB.TagSendUint64(1, 2),
	}
	for _, r := range waiting {
		require.False(t, r.Done())
		r.Cancel()
		require.ErrorIs(t, r.Err(), ucp.ErrCanceled)
	}
	buf := make([]byte, 3000)
	for range sent {
		p.MustRecv(p.B.TagRecv(buf, 1, exact))
	}
	p.next(p.AB, p.B)
	_, ok := p.B.TagProbe(2, exact)
	require.False(t, ok)
}

func cancelRndvLate(t *testing.T, p *Pair) {
	buf := make([]byte, 9)
	rr := p.B.TagRecv(buf, 1, exact)
	rs := p.AB.TagSendWith([]byte("something"), 1, rndv)
	require.NoError(t, p.Wait(rs))
	p.Until(rr.Done)
	for range 2 {
		rs.Cancel()
		rr.Cancel()
	}
	require.Equal(t, 9, p.MustRecv(rr).Len)
	rs = p.AB.TagSendWith(buf, 1, rndv)
	rs.Cancel()
	rs.Cancel()
	require.ErrorIs(t, rs.Err(), ucp.ErrCanceled)
	p.next(p.AB, p.B)
}

// cancelStopped: the peer never progresses, as if it were stopped. What waits for
// it can be canceled, its endpoint aborted and the worker closed, at once; when
// it goes on it finds nothing by half.
func cancelStopped(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("a worker does not stop while it goes on")
	}
	stopped := p.undriven()
	w := p.newWorker(ucp.WorkerConfig{Mode: p.mode})
	e, other := p.Connect(w, stopped), p.Connect(w, stopped)
	data := pattern(100_000, 1)
	rs := []ucp.Request{
		e.TagSendSync(data[:9], 1), e.TagSendSync(data, 1), e.TagSend(data, 1), e.TagSendWith(nil, 1, rndv),
		e.TagSendV([][]byte{data, data}, 1),
	}
	wantPeer := len(rs) // these do not end without it; others may have been taken
	_, last := fill(p, e, 3000)
	half := e.TagSendWith(data, 1, ucp.Opts{Flags: ucp.ForceEager})
	const short = 7 // it goes when those before it are withdrawn, where there is room for so little
	rs = append(rs, last, half, other.TagSendUint64(1, 2), other.TagSendSync(data, 1))
	p.Settle()
	for i, r := range rs {
		taken := p.Factory.Takes && i >= wantPeer || i == short
		require.True(t, taken || !r.Done(), "request %d", i)
		r.Cancel()
		if err := r.Err(); err != nil || !taken {
			require.ErrorIs(t, err, ucp.ErrCanceled, "request %d", i)
		}
	}
	e.Abort(errCause)
	other.Abort(errCause)
	require.NoError(t, w.Close(), "it waits for no peer")
	for range 20_000 {
		stopped.Progress()
	}
	_, ok := stopped.TagProbe(1, exact)
	for ok {
		var k ucp.MatchedMessage
		k, ok = stopped.TagMprobe(1, exact)
		if ok && k.Len > 3000 {
			_, err := k.Recv(nil).Wait(p.deadline)
			if !p.Factory.Takes || !errors.Is(err, ucp.ErrTruncated) { // else it came whole
				require.ErrorIs(t, err, ucp.ErrCanceled, "%d bytes", k.Len)
			}
		}
		k.Drop()
	}
	p.next(p.AB, p.B)
}
