package ucp

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// zcopyFrom are the lengths in bytes from which transfers are made without a copy: any
// for memory that is registered for the operation, registered for memory that is
// registered already.
type zcopyFrom struct{ any, registered uint64 }

func (f forms) none() bool { return f.short == 0 && f.bcopy == 0 }

// zcopySavesCopy reports whether zcopy saves a copy: the port's device moves the bytes, and
// not the CPU in any case.
func (wi *workerIface) zcopySavesCopy(l uct.Limit) bool {
	a := wi.domain.Attr()
	return a.NeedMem && a.Register && l.MaxZcopy > 0 && l.MaxVec > 0
}

// transferIn is transfer for p, which lies in m.
//
//go:noinline
func (k *RemoteKey) transferIn(op opKind, p []byte, off uint64, m *MemHandle) Request {
	k.t.lock()
	defer k.t.unlock()
	return k.transfer(op, p, off, m)
}

// planZcopy marks the transfer in slot i for zcopy if that is worth it. Its buffer lies in
// m if m is not nil.
func (w *Worker) planZcopy(i uint32, m *MemHandle) {
	s := &w.slab.slots[i]
	buf := w.slab.bufs[i]
	wi := w.ifaces[w.t.lanes[s.lane].iface]
	var mem uct.Mem
	if domain := w.locals[wi.index].Domain; m != nil && m.ctx == w.ctx {
		mem = m.regionIn(domain)
	} else {
		mem = w.ctx.findRegion(buf, domain, 0)
	}
	switch {
	case mem != nil:
		w.slab.attachMem(i, opMem{Mem: mem})
	case s.length < w.zcopyFrom.any:
		return
	}
	s.aux |= auxZcopy
}

// postZcopy posts the first part of p, the rest of the transfer in slot i, by zcopy. It
// returns Unsupported if p has to be copied. It registers memory only when the transport
// can take the transfer, so no more memory is registered than a transport's queue holds.
func (w *Worker) postZcopy(i uint32, p []byte, lim uct.Limit) (int, ucs.Status) {
	s := &w.slab.slots[i]
	l := &w.t.lanes[s.lane]
	if len(p) < lim.MinZcopy {
		return 0, ucs.Unsupported
	}
	m := w.slab.mem(i)
	if m == nil {
		if l.pending > 0 && !w.resuming {
			return 0, ucs.NoResource
		}
		own, err := w.ifaces[l.iface].register(w.slab.bufs[i], 0)
		if err != nil {
			s.aux &^= auxZcopy
			return 0, ucs.Unsupported
		}
		w.slab.attachMem(i, own)
		m = own.Mem
	}
	p = p[:min(len(p), lim.MaxZcopy)]
	w.am.vec[0] = uct.Vec{Buf: p, Mem: m}
	var st ucs.Status
	t := w.slab.token(i)
	if s.op == opPut {
		st = l.ep.PutZcopy(w.am.vec[:], s.arg+s.off, uct.RKey(s.tag), t)
	} else {
		st = l.ep.GetZcopy(w.am.vec[:], s.arg+s.off, uct.RKey(s.tag), t)
	}
	w.am.vec[0] = uct.Vec{}
	if s.off == 0 && st != ucs.NoResource {
		w.count.Inc(cntZcopy)
	}
	return len(p), st
}
