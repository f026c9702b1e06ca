// Package cpu knows the processor: its cycle counter, its cores, caches and
// NUMA nodes, and which of them the calling thread may run on.
//
// Cycles and Pause are the only assembly of goucx; every other processor has Go
// twins. The topology is read from sysfs through an fs.FS, so that tests bring
// machines of their own.
package cpu
