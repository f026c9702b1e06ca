package ucptest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var tagProbeCases = []Case{
	{"24 probe finds nothing, leaves, or takes", probeTake},
	{"25 probe and take of a message that still comes in", probeFragments},
	{"26 probe and take of what was announced", probeAnnounced},
	{"27 taken messages are received in any order", takenReverse},
	{"a taken message is received once, or dropped", takenOnce},
}

// probe waits until a message is there.
func (p *Pair) probe(tag, mask ucp.Tag) (m ucp.Message) {
	p.Until(func() (ok bool) {
		m, ok = p.B.TagProbe(tag, mask)
		return ok
	})
	return m
}

func probeTake(t *testing.T, p *Pair) {
	_, ok := p.B.TagProbe(0, 0)
	require.False(t, ok)
	_, ok = p.B.TagMprobe(0, 0)
	require.False(t, ok)
	p.AB.TagSend([]byte("hello"), 0x35)
	want := ucp.Message{Tag: 0x35, Len: 5}
	require.Equal(t, want, p.probe(0x05, 0x0f))
	require.Equal(t, want, p.probe(0x35, exact), "it is still there")
	_, ok = p.B.TagProbe(0x36, exact)
	require.False(t, ok)
	k, ok := p.B.TagMprobe(0x30, 0xf0)
	require.True(t, ok)
	require.Equal(t, want, k.Message)
	_, ok = p.B.TagProbe(0, 0)
	require.False(t, ok, "it was taken")
	buf := make([]byte, 8)
	other := p.B.TagRecv(buf, 0, 0)
	p.Settle()
	require.False(t, other.Done(), "no other receive gets it")
	require.Equal(t, want, p.MustRecv(k.Recv(buf)))
	require.Equal(t, "hello", string(buf[:5]))
	other.Cancel()
	other.Drop()
}

func probeFragments(t *testing.T, p *Pair) {
	const n = 300_000
	data := pattern(n, 1)
	for _, room := range []int{n, 1000, 0} {
		rs := p.AB.TagSendWith(data, 1, ucp.Opts{Flags: ucp.ForceEager})
		require.Equal(t, ucp.Message{Tag: 1, Len: n}, p.probe(1, exact))
		k, ok := p.B.TagMprobe(1, exact)
		require.True(t, ok)
		buf := make([]byte, room)
		m, err := p.Recv(k.Recv(buf))
		require.Equal(t, n, m.Len)
		if room < n {
			require.ErrorIs(t, err, ucp.ErrTruncated)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, string(data[:room]), string(buf))
		require.NoError(t, p.Wait(rs))
	}
	rs := p.AB.TagSendWith(data, 1, ucp.Opts{Flags: ucp.ForceEager})
	p.probe(1, exact)
	k, _ := p.B.TagMprobe(1, exact)
	k.Drop()
	require.NoError(t, p.Wait(rs), "it was sent along, whether anybody wants it or not")
	p.AB.TagSend([]byte("next"), 1)
	require.Equal(t, 4, p.MustRecv(p.B.TagRecv(make([]byte, 4), 1, exact)).Len)
}

func probeAnnounced(t *testing.T, p *Pair) {
	for _, send := range []func([]byte) ucp.Request{
		func(b []byte) ucp.Request { return p.AB.TagSendWith(b, 1, rndv) },
		func(b []byte) ucp.Request { return p.AB.TagSendSync(b, 1) },
	} {
		for _, n := range []int{0, 9, 100_000} {
			data, buf := pattern(n, 1), make([]byte, n)
			rs := send(data)
			require.Equal(t, ucp.Message{Tag: 1, Len: n}, p.probe(1, exact))
			k, ok := p.B.TagMprobe(1, exact)
			require.True(t, ok)
			p.Settle()
			require.False(t, rs.Done(), "taken is not received")
			require.Equal(t, n, p.MustRecv(k.Recv(buf)).Len)
			require.Equal(t, string(data), string(buf))
			require.NoError(t, p.Wait(rs))

			rs = send(data)
			p.probe(1, exact)
			k, _ = p.B.TagMprobe(1, exact)
			k.Drop()
			require.ErrorIs(t, p.Wait(rs), ucp.ErrRejected)
		}
	}
}

func takenReverse(t *testing.T, p *Pair) {
	for _, flags := range []ucp.Flags{0, ucp.ForceRendezvous} {
		var ks []ucp.MatchedMessage
		for i := range 8 {
			p.AB.TagSendWith([]byte{byte(i), 1, 2}, 5, ucp.Opts{Flags: flags})
		}
		for range 8 {
			p.probe(5, exact)
			k, ok := p.B.TagMprobe(5, exact)
			require.True(t, ok)
			ks = append(ks, k)
		}
		for i := 7; i >= 0; i-- {
			buf := make([]byte, 3)
			p.MustRecv(ks[i].Recv(buf))
			require.Equal(t, byte(i), buf[0])
		}
	}
}

func takenOnce(t *testing.T, p *Pair) {
	take := func() ucp.MatchedMessage {
		p.AB.TagSend([]byte("x"), 5)
		p.probe(5, exact)
		k, ok := p.B.TagMprobe(5, exact)
		require.True(t, ok)
		return k
	}
	buf := make([]byte, 1)
	k := take()
	p.MustRecv(k.Recv(buf))
	_, err := k.Recv(buf).Wait(p.deadline)
	require.ErrorIs(t, err, ucp.ErrStale)
	k.Drop()
	again := take() // has the slot of k, or its number
	k.Drop()
	_, err = k.Recv(buf).Wait(p.deadline)
	require.ErrorIs(t, err, ucp.ErrStale)
	p.MustRecv(again.Recv(buf))
	k = take()
	k.Drop()
	k.Drop()
	_, err = k.Recv(buf).Wait(p.deadline)
	require.ErrorIs(t, err, ucp.ErrStale)
	ucp.MatchedMessage{}.Drop()
	_, err = ucp.MatchedMessage{}.Recv(buf).Wait(p.deadline)
	require.ErrorIs(t, err, ucp.ErrStale)
}
