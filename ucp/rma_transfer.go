package ucp

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// The slow paths of put and get: under the lock, with all checks, in parts, and as slots if
// they must wait.

//go:noinline
func (k *RemoteKey) putSlow(p []byte, off uint64) Request {
	k.t.lock()
	defer k.t.unlock()
	return k.transfer(request.Put, p, off, nil)
}

//go:noinline
func (k *RemoteKey) getSlow(p []byte, off uint64) Request {
	k.t.lock()
	defer k.t.unlock()
	return k.transfer(request.Get, p, off, nil)
}

// putInlineSlow puts p. If the put must wait, it puts a copy of p.
//
//go:noinline
func (k *RemoteKey) putInlineSlow(p []byte, off uint64) Request {
	k.t.lock()
	defer k.t.unlock()
	if k.rma != nil && uint64(len(p)) > k.rma.put.short {
		return k.refuseLocked(request.Put, statusErr(ucs.TooLong))
	}
	if len(p) == 8 {
		return k.putWord(binary.LittleEndian.Uint64(p), off)
	}
	if r, done := k.begin(request.Put, p, off); done {
		return r
	}
	return k.post(request.Put, bytes.Clone(p), off, nil)
}

//go:noinline
func (k *RemoteKey) putUint64Slow(v, off uint64) Request {
	k.t.lock()
	defer k.t.unlock()
	return k.putWord(v, off)
}

func (k *RemoteKey) putWord(v, off uint64) Request {
	if r, bad := k.check(request.PutUint64, off, 8); bad {
		return r
	}
	if k.endpoint(k.rma).PutUint64(v, k.base+off, k.rma.rkey) == ucs.OK {
		return Request{}
	}
	i := k.newSlot(request.PutUint64, k.rma, off)
	request.As[wordOp](&k.t.slab.Slots[i]).operand = v
	return k.t.start(i)
}

//go:noinline
func (k *RemoteKey) getUint64Slow(off uint64) Fetch[uint64] {
	k.t.lock()
	defer k.t.unlock()
	if r, bad := k.check(request.GetUint64, off, 8); bad {
		return Fetch[uint64]{r: r}
	}
	w := k.t
	if !k.rma.emulOnly && k.rma.get.short == 0 { // a transport without GetUint64: the word arrives in a bounce buffer
		i := k.newSlot(request.GetUint64, k.rma, off)
		c := w.pool.Get(8)
		w.slab.copies[i] = c
		w.slab.Bufs[i] = w.pool.Bytes(c)[:8:8]
		s := request.As[wordOp](&w.slab.Slots[i])
		s.Flags |= request.FlagExtra
		s.form = formBounced
		v, r := w.startFetch(i)
		return Fetch[uint64]{v, r}
	}
	v, st := k.endpoint(k.rma).GetUint64(k.base+off, k.rma.rkey, w.slab.NextToken())
	if st == ucs.OK {
		return Fetch[uint64]{v: v}
	}
	if st == ucs.InProgress {
		return Fetch[uint64]{r: k.newFetchSlot(request.GetUint64, k.rma)}
	}
	v, r := w.startFetch(k.newSlot(request.GetUint64, k.rma, off))
	return Fetch[uint64]{v, r}
}

// transfer puts or gets p, which lies in m if m is not nil.
func (k *RemoteKey) transfer(op request.Kind, p []byte, off uint64, m *MemHandle) Request {
	if r, done := k.begin(op, p, off); done {
		return r
	}
	return k.post(op, p, off, m)
}

// begin checks a transfer. It carries it out if it is one short operation and the transport
// has resources. It keeps no reference to p.
func (k *RemoteKey) begin(op request.Kind, p []byte, off uint64) (r Request, done bool) {
	r, bad := k.check(op, off, uint64(len(p)))
	if bad || len(p) == 0 {
		return r, true
	}
	l := k.rma
	ep := k.endpoint(l)
	st := ucs.NoResource
	switch n := uint64(len(p)); {
	case op == request.Put && n <= l.put.short:
		st = ep.PutShort(noescape(p), k.base+off, l.rkey)
	case op == request.Get && n <= l.get.short:
		st = ep.GetShort(p, k.base+off, l.rkey)
	}
	return Request{}, st == ucs.OK
}

// post carries out a checked transfer that begin did not.
func (k *RemoteKey) post(op request.Kind, p []byte, off uint64, m *MemHandle) Request {
	f := k.rma.put
	if op == request.Get {
		f = k.rma.get
	}
	w := k.t
	i := k.newSlot(op, k.rma, off)
	s := request.As[rmaOp](&w.slab.Slots[i])
	s.length = uint64(len(p))
	s.form |= f.pack()
	w.slab.Bufs[i] = p
	if f.zcopy && s.length > f.short && s.length >= w.zcopyFrom.registered { // zcopy may be worth it
		var mem uct.Mem
		if domain := w.locals[w.lanes[s.Lane].iface].Domain; m != nil && m.ctx == w.ctx {
			mem = m.regionIn(domain)
		} else {
			mem = w.ctx.findRegion(p, domain, 0)
		}
		if mem != nil {
			w.slab.attachMem(i, opMem{Mem: mem})
		}
		if mem != nil || s.length >= w.zcopyFrom.any {
			s.form |= formZcopy
		}
	}
	return w.start(i)
}

// newSlot returns a slot for an operation by l at offset off.
func (k *RemoteKey) newSlot(op request.Kind, l *keyLane, off uint64) uint32 {
	w := k.t
	i := w.slab.Alloc(op)
	s := request.As[rmaOp](&w.slab.Slots[i])
	s.EP, s.Lane = w.endpoint(k.e), l.lane
	s.key, s.addr, s.off, s.length = uint64(l.rkey), k.base+off, 0, 0
	if l.emulOnly {
		s.form = formEmulated
	}
	return i
}

// check returns the request of a transfer that is refused.
func (k *RemoteKey) check(op request.Kind, off, n uint64) (r Request, bad bool) {
	need, name := uct.MemRemotePut, "put"
	if op == request.Get || op == request.GetUint64 {
		need, name = uct.MemRemoteGet, "get"
	}
	if k.failed != nil {
		return k.refuseLocked(op, k.failed), true
	}
	st := k.usable(need)
	switch {
	case st == ucs.OK && (off > k.size || n > k.size-off):
		return k.refuseLocked(op, fmt.Errorf("%s of %d bytes at offset %d of a region of %d: %w", name, n, off, k.size, ErrInvalid)), true
	case st == ucs.OK && k.rma == nil && n > 0:
		st = ucs.Unsupported
	}
	switch st {
	case ucs.OK:
	case ucs.RemoteAccess, ucs.Unsupported, refusedRMA:
		return k.refuseLocked(op, statusErr(st)), true
	default: // the endpoint's own status, which its flush reports too
		return k.t.refuse(op, k.e, st), true
	}
	return Request{}, false
}

// refuse returns the request of an operation that is refused for a reason that no
// status describes.
func (k *RemoteKey) refuse(op request.Kind, err error) Request {
	k.t.lock()
	defer k.t.unlock()
	return k.refuseLocked(op, err)
}

// refuseLocked is refuse for a caller that holds the lock. The outcome is an unclaimed
// completion, so that a flush can report it: see flush.go.
func (k *RemoteKey) refuseLocked(op request.Kind, err error) Request {
	w := k.t
	peer := w.peerName(w.endpoint(k.e))
	i := w.slab.Alloc(op)
	// Without an endpoint. The request may never be looked at, so it joins the
	// unclaimed completions.
	s := request.As[refusedOp](&w.slab.Slots[i])
	s.endpoint, s.form = k.e.id, formRefused
	w.unreportedRefusals++
	w.slab.saveErr(i, &OpError{Op: op.String(), Peer: peer, Err: err})
	r := Request{k.t, w.slab.ID(i)}
	w.end(i, ucs.InvalidParam)
	return r
}

// rmaOp is the slot of a put or get in parts.
type rmaOp struct {
	request.Header
	form   rmaForm
	_      uint32
	key    uint64 // the transport's key, or an emulKey
	addr   uint64 // in the peer's memory
	off    uint64 // bytes posted
	length uint64
}

// wordOp is the slot of an atomic, or of a put or get of eight bytes.
type wordOp struct {
	request.Header
	form    rmaForm
	_       uint32
	key     uint64 // as in rmaOp; once complete the value fetched, in the place of a receive's tag
	addr    uint64
	operand uint64 // the value to put
	compare uint64
}

// rmaForm says how an operation is carried out. An atomic has its operation and width in the
// low bits.
type rmaForm uint32

const (
	formShort rmaForm = 1 << iota // the key allows short operations
	formBcopy                     // the key allows bcopy
	formZcopy                     // the transfer is made by zcopy

	formBounced  rmaForm = 1 << 29 // a word that arrives in a bounce buffer
	formEmulated rmaForm = 1 << 30 // emulated, by active messages
	formRefused  rmaForm = 1 << 31 // refused when it was posted: see flush.go
)

// oneSided returns the endpoint that carries out an operation of this form.
func (l *lane) oneSided(form rmaForm) uct.Endpoint {
	if form&formEmulated != 0 {
		return l.emul
	}
	return l.ep
}

func (f forms) pack() (a rmaForm) {
	if f.short > 0 {
		a |= formShort
	}
	if f.bcopy > 0 {
		a |= formBcopy
	}
	return a
}

var transferOperation = operation{progress: (*thread).resumeTransfer}

// resumeTransfer posts a put or get in parts, as far as the transport has resources. s.off
// counts the bytes posted, s.parts the parts that have not completed.
func (w *thread) resumeTransfer(i uint32) ucs.Status {
	for {
		s := request.As[rmaOp](&w.slab.Slots[i])
		l := &w.lanes[s.Lane]
		switch {
		case s.Lane == 0 && s.Status == ucs.OK:
			s.Status = ucs.Canceled // its endpoint was closed in the meantime
		case s.Status == ucs.OK && l.state == laneFailed:
			s.Status = l.status()
		}
		if s.Status != ucs.OK {
			s.off = s.length // post no more
		}
		if s.off == s.length {
			if s.Parts > 0 {
				return ucs.InProgress
			}
			return s.Status
		}
		n, st := w.postPart(i, l, w.slab.Bufs[i][s.off:])
		switch st {
		case ucs.NoResource:
			return st
		case ucs.OK, ucs.InProgress:
			s.off += uint64(n)
			s.Parts += uint32(st) // OK is 0, InProgress 1
		default:
			s.Status = st
		}
	}
}

// postPart posts the first part of p, the rest of the transfer in slot i.
func (w *thread) postPart(i uint32, l *lane, p []byte) (n int, st ucs.Status) {
	s, t := request.As[rmaOp](&w.slab.Slots[i]), w.slab.Token(i)
	a := w.ifaces[l.iface].iface.Attr()
	lim, k, addr := a.Put, uct.RKey(s.key), s.addr+s.off
	if s.Op == request.Get {
		lim = a.Get
	}
	if s.form&formEmulated != 0 {
		lim = uct.Limit{Short: l.emul.limit, Bcopy: l.emul.limit}
	}
	if s.form&formZcopy != 0 {
		if n, st = w.postZcopy(i, p, lim); st != ucs.Unsupported {
			return n, st
		}
	}
	ep := l.oneSided(s.form)
	short := s.form&formShort != 0 && (len(p) <= lim.Short || s.form&formBcopy == 0)
	if short {
		p = p[:min(len(p), lim.Short)]
	} else {
		p = p[:min(len(p), lim.Bcopy)]
	}
	switch {
	case short && s.Op == request.Put:
		st = ep.PutShort(p, addr, k)
	case short:
		st = ep.GetShort(p, addr, k)
	case s.Op == request.Put:
		st = ep.PutBcopy(p, addr, k, t)
	default:
		st = ep.GetBcopy(p, addr, k, t)
	}
	return len(p), st
}

// zcopyFrom are the lengths in bytes from which transfers are made without a copy: any
// for memory that is registered for the operation, registered for memory that is
// registered already.
type zcopyFrom struct{ any, registered uint64 }

func (f forms) none() bool { return f.short == 0 && f.bcopy == 0 }

// zcopySavesCopy reports whether zcopy saves a copy: the iface's device moves the bytes, and
// not the CPU in any case.
func (wi *workerIface) zcopySavesCopy(l uct.Limit) bool {
	a := wi.domain.Attr()
	return a.NeedMem && a.Register && l.MaxZcopy > 0 && l.MaxVec > 0
}

// transferIn is transfer for p, which lies in m.
//
//go:noinline
func (k *RemoteKey) transferIn(op request.Kind, p []byte, off uint64, m *MemHandle) Request {
	k.t.lock()
	defer k.t.unlock()
	return k.transfer(op, p, off, m)
}

// postZcopy posts the first part of p, the rest of the transfer in slot i, by zcopy. It
// returns Unsupported if p has to be copied. It registers memory only when the transport
// can take the transfer, so no more memory is registered than a transport's queue holds.
func (w *thread) postZcopy(i uint32, p []byte, lim uct.Limit) (int, ucs.Status) {
	s := request.As[rmaOp](&w.slab.Slots[i])
	l := &w.lanes[s.Lane]
	if len(p) < lim.MinZcopy {
		return 0, ucs.Unsupported
	}
	m := w.slab.mem(i)
	if m == nil {
		if l.pending > 0 && !w.resuming {
			return 0, ucs.NoResource
		}
		own, err := w.ifaces[l.iface].register(w.slab.Bufs[i], 0)
		if err != nil {
			s.form &^= formZcopy
			return 0, ucs.Unsupported
		}
		w.slab.attachMem(i, own)
		m = own.Mem
	}
	p = p[:min(len(p), lim.MaxZcopy)]
	w.am.vec[0] = uct.Vec{Buf: p, Mem: m}
	var st ucs.Status
	t := w.slab.Token(i)
	if s.Op == request.Put {
		st = l.ep.PutZcopy(w.am.vec[:], s.addr+s.off, uct.RKey(s.key), t)
	} else {
		st = l.ep.GetZcopy(w.am.vec[:], s.addr+s.off, uct.RKey(s.key), t)
	}
	w.am.vec[0] = uct.Vec{}
	if s.off == 0 && st != ucs.NoResource {
		w.count.Inc(cntZcopy)
	}
	return len(p), st
}
