// Package ring is a single-producer single-consumer message ring on a []byte,
// which may lie on the heap or be mapped by two processes.
//
// A ring has cells of one cache line and a bulk area. A message of at most
// InlineMax bytes lies whole in its cell; a longer one lies in the bulk area,
// and the cell says where. The producer publishes a cell by storing its first
// word, which carries the sequence number, last; the consumer knows the number
// that it waits for, so that an empty ring costs it one load and no head index
// is shared. The consumer publishes how far it came once per several messages.
//
//	area:  [ control 384 B | cells n·64 B | bulk ]
//	cell:  [ seq u32, id u8, len u8, -, flags u8 | header u64 | payload 48 B ]
//	bulk:  [ seq ...                             | header u64 | off<<32|len, advance ]
//
// What the peer writes is never trusted: each word is read once into a local,
// masked and checked; garbage is reported, and no access leaves the area.
//
// Producer and Consumer are plain structs with one owner each; their fast paths
// are small accessors that inline into the transport that embeds them. Words
// are of the host's byte order: both sides live on one host.
package ring
