package wire

import (
	"encoding/binary"

	"github.com/goucx/goucx/verbs"
)

// Lengths of the extension headers in bytes.
const (
	DETHLen         = 8
	RETHLen         = 16
	AtomicETHLen    = 28
	AETHLen         = 4
	AtomicAckETHLen = 8
	ImmLen          = 4
	IETHLen         = 4
)

// DETH is a view of a datagram header: Q_Key and source queue pair.
type DETH []byte

// Put writes the header.
func (h DETH) Put(qkey uint32, src verbs.QPN) {
	binary.BigEndian.PutUint32(h, qkey)
	binary.BigEndian.PutUint32(h[4:], uint32(src)&mask24)
}

// QKey is the queue key.
func (h DETH) QKey() uint32 { return binary.BigEndian.Uint32(h) }

// Src is the sending queue pair.
func (h DETH) Src() verbs.QPN { return verbs.QPN(binary.BigEndian.Uint32(h[4:]) & mask24) }

// RETH is a view of an RDMA header: address, key and length of the remote
// memory.
type RETH []byte

// Put writes the header; n is the length of the whole message.
func (h RETH) Put(addr uint64, rkey, n uint32) {
	binary.BigEndian.PutUint64(h, addr)
	binary.BigEndian.PutUint32(h[8:], rkey)
	binary.BigEndian.PutUint32(h[12:], n)
}

// Addr is the remote address.
func (h RETH) Addr() uint64 { return binary.BigEndian.Uint64(h) }

// RKey is the remote key.
func (h RETH) RKey() uint32 { return binary.BigEndian.Uint32(h[8:]) }

// Len is the length of the whole message in bytes.
func (h RETH) Len() uint32 { return binary.BigEndian.Uint32(h[12:]) }

// AtomicETH is a view of an atomic header.
type AtomicETH []byte

// Put writes the header. swapAdd is what is swapped in, or added; compare is of
// Compare and Swap alone.
func (h AtomicETH) Put(addr uint64, rkey uint32, swapAdd, compare uint64) {
	binary.BigEndian.PutUint64(h, addr)
	binary.BigEndian.PutUint32(h[8:], rkey)
	binary.BigEndian.PutUint64(h[12:], swapAdd)
	binary.BigEndian.PutUint64(h[20:], compare)
}

// Addr is the address of the word.
func (h AtomicETH) Addr() uint64 { return binary.BigEndian.Uint64(h) }

// RKey is the remote key.
func (h AtomicETH) RKey() uint32 { return binary.BigEndian.Uint32(h[8:]) }

// SwapAdd is the new value, or the addend.
func (h AtomicETH) SwapAdd() uint64 { return binary.BigEndian.Uint64(h[12:]) }

// Compare is the value compared with.
func (h AtomicETH) Compare() uint64 { return binary.BigEndian.Uint64(h[20:]) }

// AETH is a view of an acknowledgement header.
type AETH []byte

// Put writes the header.
func (h AETH) Put(s Syndrome, msn uint32) {
	binary.BigEndian.PutUint32(h, uint32(s)<<24|msn&mask24)
}

// Syndrome is what is acknowledged or refused.
func (h AETH) Syndrome() Syndrome { return Syndrome(h[0]) }

// MSN is the responder's message sequence number.
func (h AETH) MSN() uint32 { return binary.BigEndian.Uint32(h) & mask24 }

// AtomicAckETH is a view of the value before an atomic operation.
type AtomicAckETH []byte

// Put writes the header.
func (h AtomicAckETH) Put(old uint64) { binary.BigEndian.PutUint64(h, old) }

// Old is the value before.
func (h AtomicAckETH) Old() uint64 { return binary.BigEndian.Uint64(h) }
