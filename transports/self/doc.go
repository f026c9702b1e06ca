// Package self connects a worker with itself: what it sends, it receives in its
// own next Progress.
//
// Each endpoint has a bounded queue of messages in ordinary memory. A send
// copies into it and answers OK or, where it is full, NoResource; Progress hands
// the queue to the handler in batches, where it lies. Nothing ever stays in
// flight, so no operation answers InProgress and no Event comes. Memory is
// reached directly (package transports/internal/mapped).
//
// The owner of the iface is the only one who touches it, so there is no atomic
// and no lock on the data path.
//
// Start reading at am.go (the queue) and progress.go.
package self
