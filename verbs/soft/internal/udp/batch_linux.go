package udp

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// maxIov is the most pieces of a batch: headers, payload pieces and ICRC of each
// packet.
const maxIov = MaxSegments * (2 + verbs.MaxSGE)

// Batch is the scratch memory of one send: a batch of up to 64 packets to one peer,
// sent by one system call. With UDP segmentation all packets have one length, except
// that the last may be shorter; their IPv4 identifications count from 0.
//
//	iov  | BTH RETH | payload of an MR | ICRC BTH | payload | ICRC BTH 8 bytes ICRC |
//	       `- Buf -'                     `- Buf -'            `------- Buf -------'
//
// Ownership: the goroutine that called Socket.Begin, until Send. The payloads must not
// be freed until then.
type Batch struct {
	busy    atomic.Bool
	u       *Socket
	Peer    *Peer
	State   BatchState
	Count   int
	segLen  int // length of the first packet, ICRC included
	Total   int // bytes of all packets
	Pos     int // bytes of Buf in use
	start   int // start of the part of Buf that is not in iov yet
	niov    int
	msg     unix.Msghdr
	ctl     [128]byte
	iov     [maxIov]unix.Iovec
	iovEnds [MaxSegments]uint16 // niov after each packet, if not whole
	msgs    [MaxSegments]mmsghdr
	Buf     [MaxPayload + Slack]byte
}

// batchPool is a socket's scratch memory. A sender that finds all of it busy allocates
// its own. It must not wait, because other goroutines may wait for a lock that it
// holds.
type batchPool [8]atomic.Pointer[Batch]

// Begin begins a batch to a peer. to must not change until Send.
//
//hot:bench BenchmarkUDPPingPong
func (u *Socket) Begin(to *Peer) *Batch {
	var t *Batch
	for i := range u.batches {
		b := u.batches[i].Load()
		if b == nil {
			break
		}
		if !b.busy.Load() && b.busy.CompareAndSwap(false, true) {
			t = b
			break
		}
	}
	if t == nil {
		t = u.newBatch()
	}
	t.Peer = to
	t.State = Singles
	// A foreign peer compares the ICRC with the identifications of IPv4 packets, which the kernel counts up in a
	// segmented datagram.
	if u.GSO.Load() && !(to.Foreign && to.SockaddrLen == unix.SizeofSockaddrInet4) {
		t.State = Segments
	}
	t.Count, t.segLen, t.Total, t.Pos, t.start, t.niov = 0, 0, 0, 0, 0, 0
	return t
}

// newBatch allocates a batch, which is busy. It puts it into the pool if there is a
// free slot.
//
//go:noinline
func (u *Socket) newBatch() *Batch {
	t := &Batch{u: u}
	t.busy.Store(true)
	for i := range u.batches {
		if u.batches[i].CompareAndSwap(nil, t) {
			break
		}
	}
	return t
}

// Reserve reserves a packet of n bytes, from BTH to ICRC. It returns the bytes to build it
// in, with Slack behind a short one; nil, without side effects, if the packet does not
// fit. Seal or SealByRef must follow, or the caller updates the fields itself.
func (t *Batch) Reserve(n int) []byte {
	if t.Total+n > MaxPayload || t.Count == MaxSegments || t.State == SegmentsClosed {
		return nil
	}
	switch {
	case t.Count == 0:
		t.segLen = n
	case t.State == Singles:
	case n > t.segLen:
		return nil
	case n < t.segLen:
		t.State = SegmentsClosed
	}
	return t.Buf[t.Pos:]
}

// Seal appends the packet of n bytes that the caller has built in the reserved bytes, all
// but the ICRC.
//
//hot:bench BenchmarkUDPPingPong
func (t *Batch) Seal(n int) {
	t.Peer.Prefix.Seal(t.Buf[t.Pos:t.Pos+n], t.id())
	t.Pos += n
	t.Total += n
	t.countPacket()
}

// SealByRef appends a packet of n bytes, of which the caller has built the first h in the
// reserved bytes: the headers. The pieces of payload are referenced, not copied. pad bytes
// of padding follow.
func (t *Batch) SealByRef(n, h int, payload [][]byte, pad int) {
	b := t.Buf[t.Pos:]
	crc := t.Peer.Prefix.Start(b[:h], n, t.id())
	t.Pos += h
	t.flushBuf()
	for _, s := range payload {
		if len(s) > 0 {
			crc = wire.Update(crc, s)
			t.addIov(s)
		}
	}
	b = b[h:]
	clear(b[:pad])
	if pad > 0 {
		crc = wire.Update(crc, b[:pad])
	}
	binary.LittleEndian.PutUint32(b[pad:], crc)
	t.Pos += pad + wire.ICRCLen
	t.Total += n
	t.countPacket()
}

// id returns the IPv4 identification of the next packet.
func (t *Batch) id() uint16 {
	if t.State != Singles {
		return uint16(t.Count)
	}
	return 0
}

func (t *Batch) countPacket() {
	if t.State == Singles {
		t.flushBuf()
		t.iovEnds[t.Count] = uint16(t.niov)
	}
	t.Count++
}

// addIov appends b, which is not empty, to iov.
func (t *Batch) addIov(b []byte) {
	v := &t.iov[t.niov]
	v.Base = &b[0]
	v.SetLen(len(b))
	t.niov++
}

// flushBuf appends to iov the part of Buf that is not in it yet.
func (t *Batch) flushBuf() {
	if t.Pos > t.start {
		t.addIov(t.Buf[t.start:t.Pos])
		t.start = t.Pos
	}
}
