package ucp

import (
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
)

// Put writes p to the peer's memory at offset off. The library owns p until the request
// completes. Completion means that p may be reused. Flush completes when the data is in
// the peer's memory.
//
// Put is nosplit, because the functions that it calls check the stack.
//
//hot:bench BenchmarkPut
//go:nosplit
func (k *RemoteKey) Put(p []byte, off uint64) Request {
	n := uint64(len(p))
	if n == 8 { // the transport checks the bounds
		if k.words.TryPutUint64(binary.LittleEndian.Uint64(p), k.base+off, k.rkey) {
			return Request{}
		}
		return k.putUint64Slow(binary.LittleEndian.Uint64(p), off) // this call has fewer registers to save
	}
	if n-1 < k.put && off <= k.size-n {
		if k.ep.PutShort(p, k.base+off, k.rkey) == ucs.OK {
			return Request{}
		}
	}
	return k.putSlow(p, off)
}

// PutInline is Put, but copies p before it returns, so p may be on the stack. If p does not
// fit one short operation of the transport, the request fails with ErrTooLong.
//
//hot:bench BenchmarkPutInline
func (k *RemoteKey) PutInline(p []byte, off uint64) Request {
	n := uint64(len(p))
	if n-1 < k.put && off <= k.size-n && k.ep.PutShort(noescape(p), k.base+off, k.rkey) == ucs.OK {
		return Request{}
	}
	return k.putInlineSlow(noescape(p), off)
}

// PutUint64 writes v as eight little-endian bytes. If their address in the peer's memory is
// a multiple of eight, the write is atomic.
//
//hot:bench BenchmarkPutUint64
func (k *RemoteKey) PutUint64(v, off uint64) Request {
	if off < k.put64 && k.ep.PutUint64(v, k.base+off, k.rkey) == ucs.OK {
		return Request{}
	}
	return k.putUint64Slow(v, off)
}

// Get reads len(p) bytes at offset off into p. The library owns p until the
// request completes.
//
//hot:bench BenchmarkGet
func (k *RemoteKey) Get(p []byte, off uint64) Request {
	n := uint64(len(p))
	if n-1 < k.get && off <= k.size-n && k.ep.GetShort(p, k.base+off, k.rkey) == ucs.OK {
		return Request{}
	}
	return k.getSlow(p, off)
}

// GetUint64 reads eight little-endian bytes. If their address in the peer's memory is a
// multiple of eight, the read is atomic.
//
//hot:bench BenchmarkGetUint64
func (k *RemoteKey) GetUint64(off uint64) Fetch[uint64] {
	if off < k.get64 {
		v, st := k.ep.GetUint64(k.base+off, k.rkey, k.t.slab.NextToken())
		if st == ucs.OK {
			return Fetch[uint64]{v: v}
		}
		if st == ucs.InProgress {
			return Fetch[uint64]{r: k.newFetchSlot(request.GetUint64, k.rma)}
		}
	}
	return k.getUint64Slow(off)
}

// PutWith is Put with options. If o.Mem is set, p must lie in it.
func (k *RemoteKey) PutWith(p []byte, off uint64, o Opts) Request {
	if !o.covers(p) {
		return k.refuse(request.Put, fmt.Errorf("%d bytes outside of Opts.Mem: %w", len(p), ErrInvalid))
	}
	if o.Mem != nil && k.rma != nil && k.rma.put.zcopy && uint64(len(p)) > k.rma.put.short {
		return k.transferIn(request.Put, p, off, o.Mem)
	}
	return k.Put(p, off)
}

// GetWith is Get with options. If o.Mem is set, p must lie in it.
func (k *RemoteKey) GetWith(p []byte, off uint64, o Opts) Request {
	if !o.covers(p) {
		return k.refuse(request.Get, fmt.Errorf("%d bytes outside of Opts.Mem: %w", len(p), ErrInvalid))
	}
	if o.Mem != nil && k.rma != nil && k.rma.get.zcopy {
		return k.transferIn(request.Get, p, off, o.Mem)
	}
	return k.Get(p, off)
}

// covers reports whether p lies in o.Mem, or o.Mem is nil.
func (o Opts) covers(p []byte) bool {
	if o.Mem == nil || len(p) == 0 {
		return true
	}
	m := o.Mem.Bytes()
	off := addressOf(p) - addressOf(m)
	return len(m) >= len(p) && off <= uint64(len(m)-len(p))
}
