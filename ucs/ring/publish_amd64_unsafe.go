//go:build amd64 && !race

package ring

import "unsafe"

// Publish stores the cell's first word after all stores before it. A plain
// store is a release on amd64 (TSO), and the compiler keeps stores in order;
// atomic.Store would be an XCHG that costs ten times as much.
func (c Cell) Publish(first uint64) { *(*uint64)(c.p) = first }

// storeRelease publishes one word of the consumer.
func storeRelease(p *uint64, v uint64) { *(*uint64)(unsafe.Pointer(p)) = v }
