// Package vm boots Debian's kernel in a small machine under qemu and runs programs in it. The kernel
// has Soft-RoCE (rdma_rxe), a verbs device that is not this project's. Neither KVM nor privileges are
// needed: qemu emulates the processor, ten to twenty times slower than the host.
//
// Load downloads the kernel once and caches it. Boot builds an initramfs from programs of
// the host and starts the machine. Its first process is test/rxe/guest, which runs jobs on request
// and reports their output, status and time over a virtio-serial port (job.go). The kernel's
// log goes to another port and is kept in a file.
//
// The machine's network, see test/rxe/guest/network_linux.go:
//
//	root namespace     rxe0 on ve0, 10.77.0.1 and fd77::1
//	                   rxe1 on ve1, 10.77.0.3 and fd77::3
//	namespace "peer"   bridge pe0 of both, 10.77.0.2 and fd77::2, no verbs device
//
// Kernel 6.1 has one rxe per machine in the root namespace only, which also takes UDP port 4791
// there. So a userspace endpoint runs in namespace "peer".
package vm
