//go:build !amd64 || race

package ring

import "sync/atomic"

// Publish stores the cell's first word after all stores before it.
func (c Cell) Publish(first uint64) { atomic.StoreUint64((*uint64)(c.p), first) }

// storeRelease publishes one word of the consumer.
func storeRelease(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
