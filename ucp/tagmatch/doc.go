// Package tagmatch pairs tagged messages with receives that name a tag and a
// mask.
//
// [Posted] holds receives that wait for a message, [Arrived] messages that wait
// for a receive. A message goes to the oldest receive that takes its tag; a
// receive takes the oldest message that fits it. The cost of an exact match
// (all mask bits set) does not depend on how many others wait: each distinct tag
// has a queue of its own, found by hashing. A wildcard costs a walk over the
// older ones that it passes.
//
// Neither holds pointers or payloads: entries are numbers that the caller
// chooses and keeps its own data by. One goroutine at a time uses either.
//
// Start reading at index.go.
package tagmatch
