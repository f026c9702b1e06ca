//go:build (amd64 || arm64) && !race

package stats

// count adds to a word of which this goroutine is the only writer. An aligned
// 64-bit store is whole on these processors, so a reader's atomic load sees an
// old value or a new one, nothing between.
func count(w *uint64, n uint64) { *w += n }
