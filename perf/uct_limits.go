package perf

import (
	"fmt"
	"strings"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// fits checks the parameters against the interface's capabilities.
func (s *uctSide) fits() error {
	a := s.attr
	switch s.test.Op {
	case OpAM:
		return s.fitsForm(uct.OpAMShort, a.AM, s.p.Size()-s.p.amHeader(s.test), s.p.amHeader(s.test))
	case OpPut:
		return s.fitsForm(uct.OpPutShort, a.Put, s.p.Size(), 0)
	case OpGet:
		return s.fitsForm(uct.OpGetShort, a.Get, s.p.Size(), 0)
	case OpAdd, OpFetchAdd, OpSwap, OpCompareSwap:
		return s.fitsAtomic()
	case OpTag, OpTagSync, OpStream, OpSend, OpDatagram, OpSharedPut:
	}
	return nil
}

// fitsForm checks a message of n bytes and its header. short is the operation's first form; bcopy
// and zcopy follow it.
func (s *uctSide) fitsForm(short uct.Ops, l uct.Limit, n, head int64) error {
	op, most := short, l.Short
	switch s.p.Layout {
	case Bcopy:
		op, most = short<<1, l.Bcopy
		n, head = n+head, 0
	case Zcopy:
		op, most = short<<2, l.MaxZcopy
	case Short:
		head = 0
	}
	switch {
	case !s.attr.Ops.Has(op):
		return fmt.Errorf("%s does not support %s with data layout %s%s: %w", s.name, s.test.Name, s.p.Layout, s.supportedLayouts(short), ucs.ErrUnsupported)
	case n > int64(most):
		return fmt.Errorf("message size (%d) is larger than max supported (%d) by %s with data layout %s: %w",
			s.p.Size(), int64(most)+s.p.Size()-n, s.name, s.p.Layout, ucs.ErrTooLong)
	case s.p.Layout != Zcopy:
		return nil
	case head > int64(l.MaxHeader):
		return fmt.Errorf("active message header size (%d) is larger than max supported (%d) by %s: %w", head, l.MaxHeader, s.name, ucs.ErrTooLong)
	case n < int64(l.MinZcopy):
		return fmt.Errorf("message size (%d) is smaller than min supported (%d) by %s: %w", n, l.MinZcopy, s.name, ucs.ErrInvalid)
	case len(s.p.Sizes) > l.MaxVec:
		return fmt.Errorf("%d pieces are more than max supported (%d) by %s: %w", len(s.p.Sizes), l.MaxVec, s.name, ucs.ErrTooLong)
	}
	return nil
}

// supportedLayouts returns the data layouts that support an operation; short is its first form.
func (s *uctSide) supportedLayouts(short uct.Ops) string {
	var has []string
	for i, l := range []Layout{Short, Bcopy, Zcopy} {
		if s.attr.Ops.Has(short << i) {
			has = append(has, string(l))
		}
	}
	if has == nil {
		return ", nor with another"
	}
	return ", but with " + strings.Join(has, " and ")
}

func (s *uctSide) fitsAtomic() error {
	post, fetch := s.attr.Post64, s.attr.Fetch64
	if s.p.Size() == 4 {
		post, fetch = s.attr.Post32, s.attr.Fetch32
	}
	set, op := fetch, s.test.Op.uct()
	if s.test.Op == OpAdd {
		set = post
	}
	if !set.Has(op) {
		return fmt.Errorf("%s does not support %s of %d bytes: %w", s.name, s.test.Name, s.p.Size(), ucs.ErrUnsupported)
	}
	return nil
}

// uct returns UCT's operation.
func (o Op) uct() uct.AtomicOp {
	switch o {
	case OpSwap:
		return uct.AtomicSwap
	case OpCompareSwap:
		return uct.AtomicCompareSwap
	default:
		return uct.AtomicAdd
	}
}

// pieces returns the message in out, without its first skip bytes, as the pieces that the
// parameters specify.
func (s *uctSide) pieces(skip int64) []uct.Vec {
	var vs []uct.Vec
	var off int64
	for _, n := range s.p.Sizes {
		cut := min(skip, n)
		skip -= cut
		if n > cut {
			vs = append(vs, uct.Vec{Buf: s.buf[off+cut : off+n], Mem: s.out})
		}
		off += max(s.p.Stride, n)
	}
	return vs
}
