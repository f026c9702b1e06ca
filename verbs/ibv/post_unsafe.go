//go:build linux && cgo && ibverbs

package ibv

// #cgo noescape goucx_post_send
// #cgo nocallback goucx_post_send
// #cgo noescape goucx_post_recv
// #cgo nocallback goucx_post_recv
// #cgo noescape goucx_post_srq_recv
// #cgo nocallback goucx_post_srq_recv
// #cgo noescape goucx_poll
// #cgo nocallback goucx_poll
// #cgo noescape goucx_post_send_poll
// #cgo nocallback goucx_post_send_poll
// #cgo noescape goucx_nothing
// #cgo nocallback goucx_nothing
// #include "shim.h"
import "C"

import (
	"runtime"
	"syscall"
	"unsafe"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// The data path: one call of C for each call of a program. The structs that C reads and writes hold
// no pointers, and C keeps no address of them.

//
// The structs of the objects that C reads are on the Go heap and hold no Go pointer. They are passed as
// numbers, because cgo would look for pointers in them at every call; KeepAlive keeps them.

// PostSend posts wrs with one call of C.
//
//hot:bench BenchmarkCrossing
func (q *qp) PostSend(wrs []verbs.SendWR) (int, ucs.Status) {
	var r C.struct_goucx_result
	C.goucx_post_send(C.uintptr_t(uintptr(unsafe.Pointer(&q.c))), (*C.struct_goucx_send_wr)(unsafe.Pointer(unsafe.SliceData(wrs))), C.uint32_t(len(wrs)), &r)
	runtime.KeepAlive(q)
	if r.err != 0 {
		return int(r.posted), status(syscall.Errno(r.err))
	}
	return int(r.posted), ucs.OK
}

// PostRecv posts receives with one call of C.
//
//hot:bench BenchmarkCrossing
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, ucs.Status) {
	var r C.struct_goucx_result
	C.goucx_post_recv(C.uintptr_t(uintptr(unsafe.Pointer(&q.c))), (*C.struct_goucx_recv_wr)(unsafe.Pointer(unsafe.SliceData(wrs))), C.uint32_t(len(wrs)), &r)
	runtime.KeepAlive(q)
	if r.err != 0 {
		return int(r.posted), status(syscall.Errno(r.err))
	}
	return int(r.posted), ucs.OK
}

// PostRecv posts receives with one call of C.
//
//hot:bench BenchmarkCrossing
func (s *srq) PostRecv(wrs []verbs.RecvWR) (int, ucs.Status) {
	var r C.struct_goucx_result
	C.goucx_post_srq_recv(C.uintptr_t(uintptr(unsafe.Pointer(&s.c))), (*C.struct_goucx_recv_wr)(unsafe.Pointer(unsafe.SliceData(wrs))), C.uint32_t(len(wrs)), &r)
	runtime.KeepAlive(s)
	if r.err != 0 {
		return int(r.posted), status(syscall.Errno(r.err))
	}
	return int(r.posted), ucs.OK
}

// Poll stores completions in wcs with one call of C.
//
//hot:bench BenchmarkCrossing
func (c *cq) Poll(wcs []verbs.WC) int {
	if c.kept.n.Load() != 0 {
		return c.pollKept(wcs)
	}
	return c.poll(wcs)
}

// poll is Poll of the queue of libibverbs alone.
//
//hot:bench BenchmarkCrossing
func (c *cq) poll(wcs []verbs.WC) int {
	var r C.struct_goucx_result
	C.goucx_poll(C.uintptr_t(uintptr(unsafe.Pointer(&c.c))), (*C.struct_goucx_wc)(unsafe.Pointer(unsafe.SliceData(wcs))), C.uint32_t(len(wcs)), &r)
	runtime.KeepAlive(c)
	return int(r.polled)
}

// PostSendPoll posts wrs and polls c with one call of C.
//
//hot:bench BenchmarkCrossing
func (q *qp) PostSendPoll(wrs []verbs.SendWR, queue verbs.CQ, wcs []verbs.WC) (n int, st ucs.Status, polled int) {
	c, ok := queue.(*cq)
	if !ok || c.kept.n.Load() != 0 {
		n, st = q.PostSend(wrs)
		return n, st, queue.Poll(wcs)
	}
	var r C.struct_goucx_result
	C.goucx_post_send_poll(C.uintptr_t(uintptr(unsafe.Pointer(&q.c))), (*C.struct_goucx_send_wr)(unsafe.Pointer(unsafe.SliceData(wrs))), C.uint32_t(len(wrs)),
		C.uintptr_t(uintptr(unsafe.Pointer(&c.c))), (*C.struct_goucx_wc)(unsafe.Pointer(unsafe.SliceData(wcs))), C.uint32_t(len(wcs)), &r)
	runtime.KeepAlive(q)
	runtime.KeepAlive(c)
	return int(r.posted), status(syscall.Errno(r.err)), int(r.polled)
}

// badFD is the error number of a call on a closed object.
const badFD = C.int(syscall.EBADF)

// errnoOf returns the error number that a call of libibverbs returned; some are negative.
func errnoOf(code C.int) syscall.Errno {
	if code < 0 {
		code = -code
	}
	return syscall.Errno(code)
}

// The layouts of the structs that Go and C share.
var (
	_ = same[unsafe.Sizeof(verbs.SendWR{})-unsafe.Sizeof(C.struct_goucx_send_wr{})]
	_ = same[unsafe.Sizeof(verbs.RecvWR{})-unsafe.Sizeof(C.struct_goucx_recv_wr{})]
	_ = same[unsafe.Sizeof(verbs.WC{})-unsafe.Sizeof(C.struct_goucx_wc{})]
	_ = same[unsafe.Sizeof(verbs.SGE{})-unsafe.Sizeof(C.struct_goucx_sge{})]
	_ = same[len(verbs.SendWR{}.SG)-C.GOUCX_MAX_SGE]
	_ = same[len(verbs.SendWR{}.Inline)-C.GOUCX_INLINE_LEN]

	_ = same[unsafe.Offsetof(verbs.SendWR{}.Op)-unsafe.Offsetof(C.struct_goucx_send_wr{}.op)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.Flags)-unsafe.Offsetof(C.struct_goucx_send_wr{}.flags)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.NumSG)-unsafe.Offsetof(C.struct_goucx_send_wr{}.num_sg)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.InlineLen)-unsafe.Offsetof(C.struct_goucx_send_wr{}.inline_len)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.Imm)-unsafe.Offsetof(C.struct_goucx_send_wr{}.imm)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.Remote)-unsafe.Offsetof(C.struct_goucx_send_wr{}.remote)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.RKey)-unsafe.Offsetof(C.struct_goucx_send_wr{}.rkey)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.QPN)-unsafe.Offsetof(C.struct_goucx_send_wr{}.qpn)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.QKey)-unsafe.Offsetof(C.struct_goucx_send_wr{}.qkey)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.AH)-unsafe.Offsetof(C.struct_goucx_send_wr{}.ah)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.Compare)-unsafe.Offsetof(C.struct_goucx_send_wr{}.compare)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.Swap)-unsafe.Offsetof(C.struct_goucx_send_wr{}.swap)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.SG)-unsafe.Offsetof(C.struct_goucx_send_wr{}.sg)]
	_ = same[unsafe.Offsetof(verbs.SendWR{}.Inline)-unsafe.Offsetof(C.struct_goucx_send_wr{}.data)]

	_ = same[unsafe.Offsetof(verbs.RecvWR{}.NumSG)-unsafe.Offsetof(C.struct_goucx_recv_wr{}.num_sg)]
	_ = same[unsafe.Offsetof(verbs.RecvWR{}.SG)-unsafe.Offsetof(C.struct_goucx_recv_wr{}.sg)]

	_ = same[unsafe.Offsetof(verbs.SGE{}.Len)-unsafe.Offsetof(C.struct_goucx_sge{}.len)]
	_ = same[unsafe.Offsetof(verbs.SGE{}.LKey)-unsafe.Offsetof(C.struct_goucx_sge{}.lkey)]

	_ = same[unsafe.Offsetof(verbs.WC{}.Status)-unsafe.Offsetof(C.struct_goucx_wc{}.status)]
	_ = same[unsafe.Offsetof(verbs.WC{}.Op)-unsafe.Offsetof(C.struct_goucx_wc{}.op)]
	_ = same[unsafe.Offsetof(verbs.WC{}.Flags)-unsafe.Offsetof(C.struct_goucx_wc{}.flags)]
	_ = same[unsafe.Offsetof(verbs.WC{}.Len)-unsafe.Offsetof(C.struct_goucx_wc{}.len)]
	_ = same[unsafe.Offsetof(verbs.WC{}.Imm)-unsafe.Offsetof(C.struct_goucx_wc{}.imm)]
	_ = same[unsafe.Offsetof(verbs.WC{}.QPN)-unsafe.Offsetof(C.struct_goucx_wc{}.qpn)]
	_ = same[unsafe.Offsetof(verbs.WC{}.SrcQP)-unsafe.Offsetof(C.struct_goucx_wc{}.src_qp)]
	_ = same[unsafe.Offsetof(verbs.WC{}.SLID)-unsafe.Offsetof(C.struct_goucx_wc{}.slid)]
	_ = same[unsafe.Offsetof(verbs.WC{}.PKeyIndex)-unsafe.Offsetof(C.struct_goucx_wc{}.pkey_index)]
	_ = same[unsafe.Offsetof(verbs.WC{}.VendorErr)-unsafe.Offsetof(C.struct_goucx_wc{}.vendor_err)]
)

// same has one element: an index that is not 0 does not compile.
var same [1]struct{}
