// Package ibv is a provider of package verbs: RDMA hardware and the kernel's Soft-RoCE, through
// libibverbs. It needs cgo, the headers of libibverbs, and the build tag ibverbs. Without them
// the package builds too: Built reports why its provider lists no device.
//
//	go build -tags ibverbs ./cmd/...
//
// # The data path
//
// A post or a poll of any length is one call of C. The C side reads verbs.SendWR and RecvWR where
// they are, builds the lists of libibverbs on its own stack, and writes verbs.WC in place; none
// of these types holds a pointer. Nothing is allocated. A queue pair implements
// verbs.PostPoller: a post and a poll in one call of C.
//
// # Memory
//
// A region pins its Go slice, and refers to it, until Close. C memory holds no Go pointer: events
// carry the cookie of a completion queue as a number, and address handles are found by number in
// a table of C.
//
// # Closing
//
// libibverbs must not be called with an object that another thread destroys. So a post or a poll
// holds a lock of its queue, in C, unless the queue is under a thread domain; Close takes it too. A call
// that comes later finds the queue closed. Close returns ucs.ErrBusy
// while objects that depend on it are open; they are counted here, not by the kernel.
// Asynchronous events are acknowledged to libibverbs when they are read; Close waits until the
// program has acknowledged them to this package.
//
// # What is not supported
//
// Ports whose link layer is InfiniBand: the address vectors of this package are those of RoCE v2.
// Tests run on the kernel's Soft-RoCE only; docs/rdma.md lists what has been tested on what.
//
// Start reading at provider.go, context.go and post_unsafe.go; shim.c is the C side.
package ibv
