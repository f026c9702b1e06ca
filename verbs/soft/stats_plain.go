//go:build (amd64 || arm64) && !race

package soft

// count adds n to a word that only this goroutine writes. An aligned store is not torn
// on these processors, so an atomic load sees the old value or the new one.
func count(w *uint64, n uint64) { *w += n }
