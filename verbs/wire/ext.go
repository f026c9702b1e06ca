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

// DETH is a view of a datagram extended transport header: Q_Key and source QPN.
type DETH []byte

// Put writes the header.
func (h DETH) Put(qkey uint32, src verbs.QPN) {
	binary.BigEndian.PutUint32(h, qkey)
	binary.BigEndian.PutUint32(h[4:], uint32(src)&mask24)
}

// QKey returns the Q_Key.
func (h DETH) QKey() uint32 { return binary.BigEndian.Uint32(h) }

// Src returns the source QPN.
func (h DETH) Src() verbs.QPN { return verbs.QPN(binary.BigEndian.Uint32(h[4:]) & mask24) }

// RETH is a view of an RDMA extended transport header: address, key and length of the
// remote memory.
type RETH []byte

// Put writes the header; n is the length of the whole message.
func (h RETH) Put(addr uint64, rkey, n uint32) {
	binary.BigEndian.PutUint64(h, addr)
	binary.BigEndian.PutUint32(h[8:], rkey)
	binary.BigEndian.PutUint32(h[12:], n)
}

// Addr returns the remote address.
func (h RETH) Addr() uint64 { return binary.BigEndian.Uint64(h) }

// RKey returns the remote key.
func (h RETH) RKey() uint32 { return binary.BigEndian.Uint32(h[8:]) }

// Len returns the length of the whole message in bytes.
func (h RETH) Len() uint32 { return binary.BigEndian.Uint32(h[12:]) }

// AtomicETH is a view of an atomic extended transport header.
type AtomicETH []byte

// Put writes the header. swapAdd is the swap value or the addend. compare is used by
// Compare and Swap only.
func (h AtomicETH) Put(addr uint64, rkey uint32, swapAdd, compare uint64) {
	binary.BigEndian.PutUint64(h, addr)
	binary.BigEndian.PutUint32(h[8:], rkey)
	binary.BigEndian.PutUint64(h[12:], swapAdd)
	binary.BigEndian.PutUint64(h[20:], compare)
}

// Addr returns the address of the word.
func (h AtomicETH) Addr() uint64 { return binary.BigEndian.Uint64(h) }

// RKey returns the remote key.
func (h AtomicETH) RKey() uint32 { return binary.BigEndian.Uint32(h[8:]) }

// SwapAdd returns the swap value or the addend.
func (h AtomicETH) SwapAdd() uint64 { return binary.BigEndian.Uint64(h[12:]) }

// Compare returns the compare value.
func (h AtomicETH) Compare() uint64 { return binary.BigEndian.Uint64(h[20:]) }

// AETH is a view of an ACK extended transport header.
type AETH []byte

// Put writes the header.
func (h AETH) Put(s Syndrome, msn uint32) {
	binary.BigEndian.PutUint32(h, uint32(s)<<24|msn&mask24)
}

// Syndrome returns the kind of ACK or NAK.
func (h AETH) Syndrome() Syndrome { return Syndrome(h[0]) }

// MSN returns the responder's message sequence number.
func (h AETH) MSN() uint32 { return binary.BigEndian.Uint32(h) & mask24 }

// AtomicAckETH is a view of the header with the value before an atomic operation.
type AtomicAckETH []byte

// Put writes the header.
func (h AtomicAckETH) Put(old uint64) { binary.BigEndian.PutUint64(h, old) }

// Old returns the value before the operation.
func (h AtomicAckETH) Old() uint64 { return binary.BigEndian.Uint64(h) }
