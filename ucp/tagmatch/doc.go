// Package tagmatch matches tagged messages with receives, which have a tag and a mask.
//
// [Posted] holds receives that wait for a message, [Unexpected] messages that wait for a
// receive. A message matches the oldest receive whose tag and mask accept its tag. A
// receive matches the oldest message that it accepts. The cost of an exact match (all
// mask bits set) does not depend on the number of entries: each distinct tag has its
// own queue, found by hashing. A wildcard costs a walk over the older entries. While all
// receives have one tag and mask, they are one queue, without hashing.
//
// Neither type holds pointers or payloads. Entries are numbers by which the caller
// finds its own data. Each value may be used by one goroutine at a time.
//
// Start reading at posted.go.
package tagmatch
