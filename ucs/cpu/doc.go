// Package cpu describes the processor: its cycle counter, cores, caches and NUMA nodes, and
// the processors that the calling thread may run on.
//
// Cycles, Pause and prefetch are the only assembly in goucx; other processors have Go
// versions. The topology is read from sysfs through an fs.FS, so that tests can supply
// their own.
package cpu
