// Package shmem wraps what two processes of a host need from the operating system to
// share memory: sealed memory segments, the Unix socket that passes their descriptors,
// event descriptors, memory barriers across processes, and copies from and to another
// process's memory.
//
// The shm transport and the async goroutine use it. Start reading at Segment (Create, Map)
// and Conn (Send, Recv).
//
// All descriptors are raw, non-blocking and close-on-exec. None of them is in Go's
// netpoller. Calls that would block return ErrWouldBlock. On systems other than Linux
// every constructor returns an error that wraps errors.ErrUnsupported.
//
// Concurrency: unless a method says otherwise, one goroutine at a time uses an object.
// Close is idempotent. It must not run concurrently with another method of the object:
// the system may reuse the descriptor's number at once.
package shmem
