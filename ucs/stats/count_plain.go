//go:build (amd64 || arm64) && !race

package stats

// count adds n to *w, of which this goroutine is the only writer. These processors store an
// aligned 64-bit word in one access. So a reader's atomic load returns the old or the new
// value.
func count(w *uint64, n uint64) { *w += n }
