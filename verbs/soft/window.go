package soft

import (
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
)

// window bounds a queue pair's outstanding packets by the room in the receiver's socket
// buffer. The kernel charges the buffer memory of each packet: 416 KB are full with 90
// packets of 4 KB in six segment batches, or with 540 single packets of 8 bytes. So the
// window is counted in packets of 4 KB, and more of the shorter ones are allowed.
//
// A loss suggests that the socket overflowed. It halves the window, which then grows by
// one packet for each window that is acknowledged.
type window struct {
	max int // as configured
	cur int
	mtu int // path MTU in bytes
	// batch is how many packets of a long message form a segment batch, at most a third
	// of the window. So one batch can be on its way, one be processed, and one be
	// acknowledged.
	batch int
	// batchesPerAck is how many batches share one ACK: half of the window, because an ACK
	// costs system calls at both ends.
	batchesPerAck    int
	part             int // packets of a READ in one request
	ackedSinceGrowth int // packets acknowledged since the window grew
}

const (
	// defaultWindow is what a socket buffer of defaultBuffer bytes holds. maxDefaultWindow is
	// the largest default: a larger window was not faster.
	defaultWindow, maxDefaultWindow = 90, 180
	defaultBuffer                   = 2 * 208 << 10
	// shortMessage is the longest message of which shortPackets count as one packet of 4
	// KB.
	shortMessage = 512
	shortPackets = 6
	// minWindow is what any number of losses leaves of a window.
	minWindow  = 8
	longPacket = 4096
	// firstBatchPackets packets at the start of a long message are a batch of their own: the
	// first packet of a WRITE is longer than the others.
	firstBatchPackets = 2
)

// newWindow returns a window of most packets of 4 KB, for packets of mtu bytes.
func newWindow(most, mtu int) window {
	v := window{max: most, cur: most, mtu: mtu}
	whole := v.packets()
	v.fitBatch()
	v.batchesPerAck = max(1, whole/2/v.batch)
	// A part has room for two segment batches, the longer first packet with one companion,
	// and the longer packet before the last. Two parts are outstanding at a time.
	v.part = max(1, v.batch, min(firstBatchPackets+2*v.batch+1, whole/2))
	return v
}

// fitBatch adapts the size of the segment batches to the window.
func (v *window) fitBatch() {
	v.batch = max(1, min(v.packets()/3, udp.MaxSegments, udp.MaxPayload/(v.mtu+udp.MinPacket)))
}

// window returns the default window, in packets of 4 KB, of a connection with packets
// of mtu bytes. A UDP peer with long packets is on this host, so its socket buffer has
// at least the size that any program gets.
func (d *device) window(mtu int) int {
	switch {
	case d.conf.Window != 0:
		return d.conf.Window
	case d.kind == overUDP && mtu > longPacket:
		return windowOf(d.udp.UnprivRcvbuf)
	}
	return defaultWindow
}

// windowOf returns the default window for a socket buffer of that size. It is a quarter
// of the buffer, since other devices send there too, but not less than defaultWindow.
func windowOf(buffer int) int {
	return min(max(buffer/4/(defaultBuffer/defaultWindow), defaultWindow), maxDefaultWindow)
}

// packets returns the window in packets of the path MTU.
func (v *window) packets() int { return max(1, v.cur*longPacket/v.mtu) }

// limit returns how many packets may be outstanding if the next one belongs to w.
func (v *window) limit(w *wqe) int {
	if w.n <= shortMessage {
		return shortPackets * v.cur
	}
	return v.packets()
}

// acked records that n packets were acknowledged, and may grow the window.
func (v *window) acked(n int) {
	if v.cur == v.max {
		return
	}
	if v.ackedSinceGrowth += n; v.ackedSinceGrowth >= v.packets() {
		v.cur, v.ackedSinceGrowth = v.cur+1, 0
		v.fitBatch()
	}
}

// halve halves the window.
func (v *window) halve() {
	v.cur, v.ackedSinceGrowth = max(v.cur/2, min(minWindow, v.max)), 0
	v.fitBatch()
}

// beginsBatch reports whether a segment batch begins after n packets of a long message.
func (v *window) beginsBatch(n uint32) bool {
	return n == 0 || n > firstBatchPackets && (n-firstBatchPackets)%uint32(v.batch) == 0
}

// endsAckGroup reports whether the packet after which n packets of a long message are sent
// ends a group of batches that share one ACK. Below the full window each batch is a
// group, so that the window never closes without an AckReq outstanding.
func (v *window) endsAckGroup(n uint32) bool {
	return n > firstBatchPackets && v.beginsBatch(n) && (v.cur < v.max || int(n-firstBatchPackets)/v.batch%v.batchesPerAck == 0)
}

// windowAllows reports whether the window allows the next packet of w. A long message is sent
// in whole batches. Otherwise a part of a batch would be acknowledged alone and allow
// the next part, until every packet was sent alone.
func (q *qp) windowAllows(w *wqe) bool {
	r := &q.req
	outstanding := r.psn.Diff(r.una)
	room := r.window.limit(w) - outstanding
	if room <= 0 {
		return false
	}
	if r.probe.pending {
		return outstanding == 0
	}
	if outstanding == 0 || w.numPSNs <= firstBatchPackets || !w.isReadOrAtomic() && !r.window.beginsBatch(r.sent) {
		return true
	}
	if w.isReadOrAtomic() {
		return room >= q.nextPart(w)
	}
	whole := r.window.batch
	if r.sent == 0 {
		whole += firstBatchPackets
	}
	return room >= min(whole, int(w.numPSNs-r.sent))
}

// wantsAckReq reports whether the packet of w built last has AckReq. The end of a message has
// it if the message is signaled or long. Before the end, the last packet of a group of
// batches has it, and the packet that fills the window. A foreign peer acknowledges
// nothing else, so every message to it has AckReq at its end.
func (q *qp) wantsAckReq(w *wqe, last bool) bool {
	r := &q.req
	if r.probe.pending {
		return true
	}
	if last && ((w.flags|q.alwaysFlags)&verbs.SendSignaled != 0 || w.numPSNs > 1 || q.route.foreign) {
		return true
	}
	return !last && r.window.endsAckGroup(r.sent) || r.psn.Diff(r.una) >= r.window.limit(w)
}
