package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

// dataPieces gathers from several pieces and scatters into several, which are cut
// elsewhere.
func dataPieces(e *env) {
	most := min(e.sides[0].Attr().MaxSGE, e.sides[1].Attr().MaxSGE)
	if most < 2 {
		e.notApplicable("one piece")
	}
	d := e.rc(func(a, b *setup) {
		for _, c := range []*setup{a, b} {
			c.caps.MaxSendSGE, c.caps.MaxRecvSGE = most, most
		}
	})
	for _, n := range []int{most * 2, 100, 1024, 5000} {
		for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpWrite, verbs.OpRead} {
			want := append(append([]byte{}, d.am.buf[:0]...), pattern(n, byte(n))...)
			cut := n/most - 1
			from, to := spread(d.am, most, n, cut), spread(d.bm, 2, n, n/3)
			remote, flat := d.bm, d.bm.buf[:n]
			switch op {
			case verbs.OpSend:
				scatter(d.am, from, want)
				d.b.receive(1, to...)
				d.a.send(request(2, op, from...))
				d.b.received(1)
				require.Equal(e, want, gather(d.bm, to), "%v of %d", op, n)
			case verbs.OpWrite:
				scatter(d.am, from, want)
				d.a.send(at(request(2, op, from...), remote, 0))
			default:
				copy(flat, want)
				scatter(d.am, from, make([]byte, n))
				d.a.send(at(request(2, op, from...), remote, 0))
			}
			d.a.sent(2)
			if op == verbs.OpWrite {
				require.Equal(e, want, flat, "%v of %d", op, n)
			}
			require.Equal(e, want, gather(d.am, from), "%v of %d", op, n)
		}
	}
}

// spread gives count pieces of m with n bytes in all, cut bytes each but the last.
func spread(m *mem, count, n, cut int) (sg []verbs.SGE) {
	for i := range count {
		size := cut
		if i == count-1 {
			size = n - cut*(count-1)
		}
		sg = append(sg, m.sge((count-i)*20000+i, size)) // not in the order of their addresses
	}
	return sg
}

func scatter(m *mem, sg []verbs.SGE, p []byte) {
	for _, s := range sg {
		p = p[copy(m.buf[s.Addr-m.Addr():][:s.Len], p):]
	}
}

func gather(m *mem, sg []verbs.SGE) (p []byte) {
	for _, s := range sg {
		p = append(p, m.buf[s.Addr-m.Addr():][:s.Len]...)
	}
	return p
}
