//go:build (amd64 || arm64) && !race

package soft

// count adds to a word of which this goroutine is the only writer: an aligned
// store is whole on these processors, so a reader's atomic load sees an old value
// or a new one.
func count(w *uint64, n uint64) { *w += n }
