package soft

import "github.com/goucx/goucx/verbs"

// window bounds a queue pair's outstanding packets by the room in the receiver's socket
// buffer. The kernel charges the buffer memory of each packet: 416 KB are full with 90
// packets of 4 KB in six segment batches, or with 540 single packets of 8 bytes. So the
// window is counted in packets of 4 KB, and more of the shorter ones are allowed.
//
// A loss suggests that the socket overflowed. It halves the window, which then grows by
// one packet for each window that is acknowledged.
type window struct {
	max int // as configured
	now int
	mtu int // path MTU in bytes
	// train is how many packets of a long message form a segment batch, at most a third
	// of the window. So one batch can be on its way, one be processed, and one be
	// acknowledged.
	train int
	// trains is how many batches share one ACK: half of the window, because an ACK
	// costs system calls at both ends.
	trains int
	part   int // packets of a READ in one request
	seen   int // packets acknowledged since the window grew
}

const (
	// usualWindow is what a socket buffer of usualBuffer bytes holds. localWindow is
	// the largest default: a larger window was not faster.
	usualWindow, localWindow = 90, 180
	usualBuffer              = 2 * 208 << 10
	// shortPacket is the longest message of which shortPackets count as one packet of 4
	// KB.
	shortPacket  = 512
	shortPackets = 6
	// leastWindow is what any number of losses leaves of a window.
	leastWindow = 8
	longPacket  = 4096
	// lonePackets packets at the start of a long message are a batch of their own: the
	// first packet of a WRITE is longer than the others.
	lonePackets = 2
)

// newWindow returns a window of most packets of 4 KB, for packets of mtu bytes.
func newWindow(most, mtu int) window {
	v := window{max: most, now: most, mtu: mtu}
	whole := v.packets()
	v.fit()
	v.trains = max(1, whole/2/v.train)
	v.part = partLen(v.train, whole/2)
	return v
}

// fit adapts the size of the segment batches to the window.
func (v *window) fit() { v.train = trainLen(v.mtu, v.packets()/3) }

// window returns the default window, in packets of 4 KB, of a connection with packets
// of mtu bytes. A UDP peer with long packets is on this host, so its socket buffer has
// at least the size that any program gets.
func (d *device) window(mtu int) int {
	switch {
	case d.conf.Window != 0:
		return d.conf.Window
	case d.kind == overUDP && mtu > longPacket:
		return windowOf(d.udp.shared)
	}
	return usualWindow
}

// windowOf returns the default window for a socket buffer of that size. It is a quarter
// of the buffer, since other devices send there too, but not less than usualWindow.
func windowOf(buffer int) int {
	return min(max(buffer/4/(usualBuffer/usualWindow), usualWindow), localWindow)
}

// packets returns the window in packets of the path MTU.
func (v *window) packets() int { return max(1, v.now*longPacket/v.mtu) }

// trainLen returns how many packets of mtu bytes form a segment batch, at most limit.
func trainLen(mtu, limit int) int {
	return max(1, min(limit, maxSegments, maxTrain/(mtu+minPacket)))
}

// open returns how many packets may be outstanding if the next one belongs to w.
func (v *window) open(w *wqe) int {
	if w.n <= shortPacket {
		return shortPackets * v.now
	}
	return v.packets()
}

// acked records that n packets were acknowledged, and may grow the window.
func (v *window) acked(n int) {
	if v.now == v.max {
		return
	}
	if v.seen += n; v.seen >= v.packets() {
		v.now, v.seen = v.now+1, 0
		v.fit()
	}
}

// lost halves the window.
func (v *window) lost() {
	v.now, v.seen = max(v.now/2, min(leastWindow, v.max)), 0
	v.fit()
}

// begins reports whether a segment batch begins after n packets of a long message.
func (v *window) begins(n uint32) bool {
	return n == 0 || n > lonePackets && (n-lonePackets)%uint32(v.train) == 0
}

// groupEnds reports whether the packet after which n packets of a long message are sent
// ends a group of batches that share one ACK. Below the full window each batch is a
// group, so that the window never closes without an AckReq outstanding.
func (v *window) groupEnds(n uint32) bool {
	return n > lonePackets && v.begins(n) && (v.now < v.max || int(n-lonePackets)/v.train%v.trains == 0)
}

// mayFly reports whether the window allows the next packet of w. A long message is sent
// in whole batches. Otherwise a part of a batch would be acknowledged alone and allow
// the next part, until every packet was sent alone.
func (q *qp) mayFly(w *wqe) bool {
	r := &q.req
	flying := r.psn.Diff(r.una)
	room := r.window.open(w) - flying
	if room <= 0 {
		return false
	}
	if r.probe.alone {
		return flying == 0
	}
	if flying == 0 || w.npk <= lonePackets || !w.reads() && !r.window.begins(r.sent) {
		return true
	}
	if w.reads() {
		return room >= q.nextPart(w)
	}
	whole := r.window.train
	if r.sent == 0 {
		whole += lonePackets
	}
	return room >= min(whole, int(w.npk-r.sent))
}

// asks reports whether the packet of w built last has AckReq. The end of a message has
// it if the message is signaled or long. Before the end, the last packet of a group of
// batches has it, and the packet that fills the window. A foreign peer acknowledges
// nothing else, so every message to it has AckReq at its end.
func (q *qp) asks(w *wqe, last bool) bool {
	r := &q.req
	if r.probe.alone {
		return true
	}
	if last && (w.flags&verbs.SendSignaled != 0 || q.sigAll || w.npk > 1 || q.to.foreign) {
		return true
	}
	return !last && r.window.groupEnds(r.sent) || r.psn.Diff(r.una) >= r.window.open(w)
}
