//go:build !amd64 || race

package ring

import "sync/atomic"

// Publish stores the cell's first word with release order. It pairs with Cell.First.
func (c Cell) Publish(first uint64) { atomic.StoreUint64((*uint64)(c.p), first) }

// storeRelease stores a word of the consumer with release order. It pairs with the
// loads in Producer.Refresh.
func storeRelease(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
