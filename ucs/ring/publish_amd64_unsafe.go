//go:build amd64 && !race

package ring

import "unsafe"

// Publish stores the cell's first word with release order: after all earlier stores. On
// amd64 a plain store has release order (TSO), and the compiler keeps stores in order.
// atomic.Store would be an XCHG, which costs ten times as much. It pairs with Cell.First.
func (c Cell) Publish(first uint64) { *(*uint64)(c.p) = first }

// storeRelease stores a word of the consumer with release order. It pairs with the
// loads in Producer.Refresh.
func storeRelease(p *uint64, v uint64) { *(*uint64)(unsafe.Pointer(p)) = v }
