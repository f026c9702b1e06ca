// Package ucs defines what every layer of goucx shares: the status codes of the data path,
// monotonic time and the cache-line size. Services with their own state are in its
// subpackages (ring, shmem, async, cpu, stats, platform, log).
package ucs
