package main

import (
	"time"

	"github.com/goucx/goucx/ucs"
)

const (
	smallestCopy, largestCopy = 4 << 10, 64 << 20              // bytes
	copyTime                  = ucs.Time(5 * time.Millisecond) // of each size
)

// memcpy prints -M: the bandwidth of copies of several sizes, in UCX's form.
func (t *tool) memcpy() error {
	t.line("Memcpy bandwidth:")
	from, to := make([]byte, largestCopy), make([]byte, largestCopy)
	for n := smallestCopy; n <= largestCopy; n *= 2 {
		copy(to[:n], from[:n]) // the pages exist
		copies, start := 0, ucs.Now()
		took := ucs.Time(0)
		for took < copyTime {
			copy(to[:n], from[:n])
			copies++
			took = ucs.Now() - start
		}
		t.line("%14d bytes: %.3f MB/s", n, float64(copies)*float64(n)/float64(took)*1e9/(1<<20))
	}
	return nil
}
