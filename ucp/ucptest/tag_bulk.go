package ucptest

import (
	"encoding/binary"
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
}

// sendForms are the ways a message may take.
var sendForms = []struct {
	name  string
	flags ucp.Flags
}{{"eager", ucp.ForceEager}, {"rendezvous", ucp.ForceRendezvous}, {"by length", 0}}

func tagFragments(t *testing.T, p *Pair) {
	for _, n := range []int{3000, 4096, 8191, 50_000, 65_536, scaled(1 << 20), scaled(5<<20 + 3)} {
		want := pattern(n, 5)
		for _, late := range []bool{false, true} {
			for _, form := range sendForms {
				buf := make([]byte, n+8)
				var rr ucp.RecvRequest
				if !late {
					rr = p.B.TagRecv(buf, 1, exact)
				}
				rs := p.AB.TagSendWith(want, 1, ucp.Opts{Flags: form.flags})
				if late {
					p.Settle()
					if form.flags == ucp.ForceEager {
						p.Until(rs.Done)
					} else if form.flags == ucp.ForceRendezvous {
						require.False(t, rs.Done(), "it was not fetched")
					}
					rr = p.B.TagRecv(buf, 1, exact)
				}
				require.Equal(t, ucp.Message{Tag: 1, Len: n}, p.MustRecv(rr), form.name)
				require.NoError(t, p.Wait(rs))
				require.Equal(t, string(want), string(buf[:n]))
				require.Equal(t, make([]byte, 8), buf[n:])
			}
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
			rs := p.AB.TagSendWith(want, 1, ucp.Opts{Flags: sendForms[steps%2].flags})
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
