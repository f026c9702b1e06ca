package ucs

// CacheLine is the spacing in bytes that keeps two writers apart: two 64-byte
// lines, because the adjacent-line prefetcher of x86 and several arm64 cores
// move lines in pairs.
const CacheLine = 128

// Pad separates fields of different owners within a struct.
type Pad [CacheLine]byte
