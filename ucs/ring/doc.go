// Package ring implements a single-producer single-consumer message ring on a []byte. The
// memory may lie on the heap or be mapped by two processes.
//
// A ring has cells of one cache line and a bulk area. A message of at most InlineMax
// bytes lies in its cell. A longer message lies in the bulk area, and its cell holds its
// position.
//
//	area:  [ control 384 B | cells n·64 B | bulk ]
//	cell:  [ seq u32, id u8, len u8, -, flags u8 | header u64 | payload 48 B ]
//	bulk:  [ seq ...                             | header u64 | off<<32|len, advance ]
//
// Invariant of publication: if a cell's first word carries the sequence number that the
// consumer expects, its header and payload are complete. The producer stores them first
// and the first word last, with release order (Cell.Publish). The consumer loads the first
// word with acquire order (Cell.First). An older message in the same cell has a different
// sequence number. So an empty ring costs the consumer one load, and the two sides share
// no head index.
//
// Invariant of reuse: the producer overwrites a cell or bulk bytes only after the
// consumer has published, with release order, that it has consumed them
// (Consumer.Release, Producer.Refresh). The consumer publishes once per several messages.
//
// Neither side trusts what the other writes. It reads each word once into a local, then
// masks and checks it. It reports garbage. No access leaves the area.
//
// Producer and Consumer are plain structs with one owner each. Their fast paths are small
// accessors that inline into the transport that embeds them. Words have the host's byte
// order: both sides run on one host.
package ring
