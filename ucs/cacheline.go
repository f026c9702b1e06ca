package ucs

// CacheLine is the distance in bytes at which two writers do not share a cache line. It is
// two lines of 64 bytes, since the adjacent-line prefetcher of x86 and of several arm64
// cores fetches lines in pairs.
const CacheLine = 128

// Pad separates struct fields that different goroutines write.
type Pad [CacheLine]byte
