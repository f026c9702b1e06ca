package soft

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// maxIov is the most pieces of a batch: headers, payload pieces and ICRC of each
// packet.
const maxIov = maxSegments * (2 + verbs.MaxSGE)

// segmentBatch is the scratch memory of one send: a batch of up to 64 packets to one peer,
// sent by one system call. With UDP segmentation all packets have one length, except
// that the last may be shorter; their IPv4 identifications count from 0.
//
//	iov  | BTH RETH | payload of an MR | ICRC BTH | payload | ICRC BTH 8 bytes ICRC |
//	       `- buf -'                     `- buf -'            `------- buf -------'
//
// Ownership: the goroutine that called udpPort.beginBatch, until send. The payloads must not
// be freed until then.
type segmentBatch struct {
	busy    atomic.Bool
	u       *udpPort
	peer    *udpPeer
	gso     bool // the kernel segments it
	closed  bool // a shorter packet was added: it is the last
	count   int
	segLen  int // length of the first packet, ICRC included
	total   int // bytes of all packets
	pos     int // bytes of buf in use
	start   int // start of the part of buf that is not in iov yet
	niov    int
	msg     unix.Msghdr
	ctl     [128]byte
	iov     [maxIov]unix.Iovec
	iovEnds [maxSegments]uint16 // niov after each packet, if not whole
	msgs    [maxSegments]mmsghdr
	buf     [maxUDPPayload + maxFastPacket]byte
}

// batchPool is a port's scratch memory. A sender that finds all of it busy allocates
// its own. It must not wait, because other goroutines may wait for a lock that it
// holds.
type batchPool [8]atomic.Pointer[segmentBatch]

// beginBatch begins a batch to a peer. to must not change until send.
//
//hot:bench BenchmarkUDPPingPong
func (u *udpPort) beginBatch(to *udpPeer) *segmentBatch {
	for i := range u.batches {
		t := u.batches[i].Load()
		if t == nil {
			break
		}
		if !t.busy.Load() && t.busy.CompareAndSwap(false, true) {
			t.reset(to)
			return t
		}
	}
	t := u.newBatch()
	t.reset(to)
	return t
}

// newBatch allocates a batch, which is busy. It puts it into the pool if there is a
// free slot.
//
//go:noinline
func (u *udpPort) newBatch() *segmentBatch {
	t := &segmentBatch{u: u}
	t.busy.Store(true)
	for i := range u.batches {
		if u.batches[i].CompareAndSwap(nil, t) {
			break
		}
	}
	return t
}

func (t *segmentBatch) reset(to *udpPeer) {
	t.peer = to
	t.gso = t.u.gso.Load() && !to.foreign
	t.closed = false
	t.count, t.segLen, t.total, t.pos, t.start, t.niov = 0, 0, 0, 0, 0, 0
}

// room returns how many more packets of n bytes, from BTH to ICRC, fit.
func (t *segmentBatch) room(n int) int {
	switch {
	case t.count == 0:
	case t.closed || t.gso && n > t.segLen:
		return 0
	case t.gso && n < t.segLen:
		return min(1, maxSegments-t.count, (maxUDPPayload-t.total)/n)
	}
	return min(maxSegments-t.count, (maxUDPPayload-t.total)/n)
}

// add appends a packet. It returns false, without side effects, if the packet does not
// fit.
//
//hot:bench BenchmarkUDPPingPong
func (t *segmentBatch) add(p *packet) bool {
	n := p.Opcode.Info().PacketLen(p.n)
	if !t.reserve(n) {
		return false
	}
	id := 0
	if t.gso {
		id = t.count
	}
	if p.n <= copyLimit || p.retransmitted {
		b := t.buf[t.pos:]
		p.encode(b)
		t.peer.prefix.Seal(b[:n], uint16(id))
		t.pos += n
	} else {
		t.addByRef(p, n, uint16(id))
	}
	t.total += n
	if !t.gso {
		t.flushBuf()
		t.iovEnds[t.count] = uint16(t.niov)
	}
	t.count++
	return true
}

// reserve reserves a packet of n bytes. It returns false, without side effects, if the
// packet does not fit.
func (t *segmentBatch) reserve(n int) bool {
	if t.total+n > maxUDPPayload || t.count == maxSegments || t.closed {
		return false
	}
	switch {
	case t.count == 0:
		t.segLen = n
	case !t.gso:
	case n > t.segLen:
		return false
	case n < t.segLen:
		t.closed = true
	}
	return true
}

// addByRef appends a packet whose payload is referenced, not copied.
func (t *segmentBatch) addByRef(p *packet, n int, id uint16) {
	b := t.buf[t.pos:]
	h := p.encodeHeader(b)
	crc := t.peer.prefix.Start(b[:h], n, id)
	t.pos += h
	t.flushBuf()
	for _, s := range p.sg[:p.nsg] {
		if len(s) > 0 {
			crc = wire.Update(crc, s)
			t.addIov(s)
		}
	}
	b = b[h:]
	if pad := int(p.PadCnt); pad > 0 {
		clear(b[:pad])
		crc = wire.Update(crc, b[:pad])
		b = b[pad:]
		t.pos += pad
	}
	binary.LittleEndian.PutUint32(b, crc)
	t.pos += wire.ICRCLen
}

// addIov appends b, which is not empty, to iov.
func (t *segmentBatch) addIov(b []byte) {
	v := &t.iov[t.niov]
	v.Base = &b[0]
	v.SetLen(len(b))
	t.niov++
}

// flushBuf appends to iov the part of buf that is not in it yet.
func (t *segmentBatch) flushBuf() {
	if t.pos > t.start {
		t.addIov(t.buf[t.start:t.pos])
		t.start = t.pos
	}
}
