package soft

import "github.com/goucx/goucx/verbs"

// window bounds what a queue pair has under way by what the receiver's socket
// holds. The kernel charges a packet with the memory that it stands in: 416 KB are
// full with 90 packets of 4 KB in six trains, and with 540 of 8 bytes one by one.
// So it is counted in packets of 4 KB, and more of shorter ones fit in.
//
// What is lost was perhaps too much: then the window is halved, and grows again
// by one packet for each window that is acknowledged.
type window struct {
	max int // as set
	now int
	mtu int // of the path
	// train is how many packets of a long message go together, a third of the
	// window at most: then one train can be on its way, one be taken, and one be
	// acknowledged.
	train int
	// trains is how many trains go for an acknowledgement, half of the window: it
	// costs both ends system calls.
	trains int
	part   int // how many packets of a long read are asked for at once
	seen   int // packets acknowledged since it grew
}

const (
	// usualWindow is what a socket of usualBuffer bytes holds. localWindow is the
	// most by default: more made nothing faster.
	usualWindow, localWindow = 90, 180
	usualBuffer              = 2 * 208 << 10
	// shortPacket is the longest message of which shortPackets go for 4 KB.
	shortPacket  = 512
	shortPackets = 6
	// leastWindow is what is left of a window after any number of losses.
	leastWindow = 8
	longPacket  = 4096
	// lonePackets begin a long message as a train of their own: the first packet of
	// a write is longer than the others.
	lonePackets = 2
)

// newWindow makes the window of most packets of 4 KB for packets of mtu bytes.
func newWindow(most, mtu int) window {
	v := window{max: most, now: most, mtu: mtu}
	whole := v.packets()
	v.fit()
	v.trains = max(1, whole/2/v.train)
	v.part = partLen(v.train, whole/2)
	return v
}

// fit has segment batches shrink and grow with the window.
func (v *window) fit() { v.train = trainLen(v.mtu, v.packets()/3) }

// window is how many packets of 4 KB a connection has under way whose own carry
// mtu bytes. A peer of long packets over UDP is on this host, so its socket holds
// at least what any program's does.
func (d *device) window(mtu int) int {
	switch {
	case d.conf.Window != 0:
		return d.conf.Window
	case d.kind == overUDP && mtu > longPacket:
		return windowOf(d.udp.shared)
	}
	return usualWindow
}

// windowOf is the default window to a socket of buffer bytes: a quarter of it,
// since others send there too, but where that is less than the usual window.
func windowOf(buffer int) int {
	return min(max(buffer/4/(usualBuffer/usualWindow), usualWindow), localWindow)
}

// packets is how many of the path MTU go for those of 4 KB.
func (v *window) packets() int { return max(1, v.now*longPacket/v.mtu) }

// trainLen is how many packets of mtu bytes make a train, limit at most.
func trainLen(mtu, limit int) int {
	return max(1, min(limit, maxSegments, maxTrain/(mtu+minPacket)))
}

// open is how many packets may be under way where w's is the next.
func (v *window) open(w *wqe) int {
	if w.n <= shortPacket {
		return shortPackets * v.now
	}
	return v.packets()
}

// acked notes that n packets were acknowledged.
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

// begins reports whether a train begins behind n packets of a long message.
func (v *window) begins(n uint32) bool {
	return n == 0 || n > lonePackets && (n-lonePackets)%uint32(v.train) == 0
}

// groupEnds reports whether n packets of a long message end with the last train of
// those that are acknowledged together. Below the full window that is each one, so
// that no stop for want of room comes before something has asked.
func (v *window) groupEnds(n uint32) bool {
	return n > lonePackets && v.begins(n) && (v.now < v.max || int(n-lonePackets)/v.train%v.trains == 0)
}

// mayFly reports whether the window lets the next packet of w go. A long message
// goes in whole trains: a part of one would be acknowledged alone and let the
// next part go, so that soon every packet travelled alone.
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

// asks reports whether the packet of w that was made asks for an
// acknowledgement: a message that is signalled or long at its end, trains before
// that at the end of so many, and what is the last for now. A foreign peer
// acknowledges nothing else, so every message to it asks at its end.
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
