package ucptest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var tagSyncCases = []Case{
	{"13 a sync send ends after the match, not before", syncAfterMatch},
	{"14 sync sends of all lengths, expected and unexpected", syncLengths},
	{"sync sends in order with others", syncOrder},
	{"more sync sends than the transport holds", syncMany},
}

func syncAfterMatch(t *testing.T, p *Pair) {
	for _, n := range []int{0, 8, 3000, 70_000} {
		data, buf := pattern(n, 1), make([]byte, n)
		r := p.AB.TagSendSync(data, 1)
		other := p.B.TagRecv(buf, 2, exact)
		p.Settle()
		require.False(t, r.Done(), "%d bytes: it is not matched", n)
		require.Equal(t, ucp.Message{Tag: 1, Len: n}, p.MustRecv(p.B.TagRecv(buf, 1, exact)))
		require.NoError(t, p.Wait(r))
		require.True(t, bytes.Equal(data, buf))
		other.Cancel()
		other.Drop()
	}
}

func syncLengths(t *testing.T, p *Pair) {
	for _, n := range []int{0, 1, 8, 40, 48, 56, 57, 1000, 3000, 8191, 65_536, 65_537, 300_000} {
		for _, room := range []int{n, n / 2} {
			for _, late := range []bool{false, true} {
				data, buf := pattern(n, 2), make([]byte, n)
				var rr ucp.RecvRequest
				if !late {
					rr = p.B.TagRecv(buf[:room], 1, exact)
				}
				rs := p.AB.TagSendSync(data, 1)
				if late {
					p.Settle()
					rr = p.B.TagRecv(buf[:room], 1, exact)
				}
				m, err := p.Recv(rr)
				require.Equal(t, n, m.Len)
				if room < n {
					require.ErrorIs(t, err, ucp.ErrTruncated)
				} else {
					require.NoError(t, err)
				}
				require.NoError(t, p.Wait(rs))
				require.True(t, bytes.Equal(data[:room], buf[:room]))
			}
		}
	}
}

func syncOrder(t *testing.T, p *Pair) {
	var rs []ucp.Request
	for i := range 40 {
		b := bytes.Repeat([]byte{byte(i)}, []int{1, 4000, 100_000}[i%3])
		if i%2 == 0 {
			rs = append(rs, p.AB.TagSendSync(b, 1))
		} else {
			rs = append(rs, p.AB.TagSend(b, 1))
		}
	}
	buf := make([]byte, 100_000)
	for i := range rs {
		p.MustRecv(p.B.TagRecv(buf, 1, exact))
		require.Equal(t, byte(i), buf[0])
	}
	for _, r := range rs {
		require.NoError(t, p.Wait(r))
	}
}

func syncMany(t *testing.T, p *Pair) {
	n := scaled(3000)
	rs := make([]ucp.Request, n)
	data, buf := make([]byte, 500), make([]byte, 500)
	for i := range rs {
		rs[i] = p.AB.TagSendSync(data, 1)
	}
	for range rs {
		p.MustRecv(p.B.TagRecv(buf, 1, exact))
	}
	for _, r := range rs {
		require.NoError(t, p.Wait(r))
	}
}
