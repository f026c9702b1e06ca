// Package ucs holds the words that every layer of goucx shares: the status
// codes of the data path, monotonic time and the cache-line size. Services
// with state of their own live in its subpackages (ring, shmem, async,
// cpu, stats, platform, log).
package ucs
