// Package shmem is goucx's contact with the operating system for everything
// that two processes of a host share: sealed memory segments, the Unix socket
// that passes their descriptors, event descriptors, memory barriers across
// processes and copies out of another process's memory.
//
// Used by the shm transport and by the async goroutine. Start reading at
// Segment (Create, Map) and Conn (Send, Recv).
//
// All descriptors are raw, non-blocking and close-on-exec; none of them lives
// in Go's netpoller. Calls that would block answer ErrWouldBlock. On systems
// other than Linux every constructor answers an error that wraps
// errors.ErrUnsupported.
//
// Concurrency: unless a method says otherwise an object belongs to one
// goroutine at a time. Close is idempotent and must not run beside another
// method of the same object: the descriptor's number may be somebody else's a
// moment later.
package shmem
