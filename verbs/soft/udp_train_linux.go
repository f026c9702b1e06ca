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

// train is the scratch memory of one send: a batch of up to 64 packets to one peer,
// sent by one system call. With UDP segmentation all packets have one length, except
// that the last may be shorter; their IPv4 identifications count from 0.
//
//	iov  | BTH RETH | payload of an MR | ICRC BTH | payload | ICRC BTH 8 bytes ICRC |
//	       `- buf -'                     `- buf -'            `------- buf -------'
//
// Ownership: the goroutine that called udpPort.train, until send. The payloads must not
// be freed until then.
type train struct {
	busy  atomic.Bool
	u     *udpPort
	to    *udpPeer
	whole bool // the kernel segments it
	short bool // a shorter packet was added: it is the last
	count int
	seg   int // length of the first packet, ICRC included
	total int // bytes of all packets
	pos   int // bytes of buf in use
	start int // start of the part of buf that is not in iov yet
	niov  int
	msg   unix.Msghdr
	ctl   [128]byte
	iov   [maxIov]unix.Iovec
	ends  [maxSegments]uint16 // niov after each packet, if not whole
	msgs  [maxSegments]mmsghdr
	buf   [maxTrain + maxShort]byte
}

// trainPool is a port's scratch memory. A sender that finds all of it busy allocates
// its own. It must not wait, because other goroutines may wait for a lock that it
// holds.
type trainPool [8]atomic.Pointer[train]

// train begins a batch to a peer. to must not change until send.
// hot: BenchmarkUDPPingPong
func (u *udpPort) train(to *udpPeer) *train {
	for i := range u.trains {
		t := u.trains[i].Load()
		if t == nil {
			break
		}
		if !t.busy.Load() && t.busy.CompareAndSwap(false, true) {
			t.begin(to)
			return t
		}
	}
	t := u.newTrain()
	t.begin(to)
	return t
}

// newTrain allocates a batch, which is busy. It puts it into the pool if there is a
// free slot.
//
//go:noinline
func (u *udpPort) newTrain() *train {
	t := &train{u: u}
	t.busy.Store(true)
	for i := range u.trains {
		if u.trains[i].CompareAndSwap(nil, t) {
			break
		}
	}
	return t
}

func (t *train) begin(to *udpPeer) {
	t.to = to
	t.whole = t.u.gso.Load() && !to.foreign
	t.short = false
	t.count, t.seg, t.total, t.pos, t.start, t.niov = 0, 0, 0, 0, 0, 0
}

// room returns how many more packets of n bytes, from BTH to ICRC, fit.
func (t *train) room(n int) int {
	switch {
	case t.count == 0:
	case t.short || t.whole && n > t.seg:
		return 0
	case t.whole && n < t.seg:
		return min(1, maxSegments-t.count, (maxTrain-t.total)/n)
	}
	return min(maxSegments-t.count, (maxTrain-t.total)/n)
}

// add appends a packet. It returns false, without side effects, if the packet does not
// fit.
// hot: BenchmarkUDPPingPong
func (t *train) add(p *packet) bool {
	n := p.op.Info().PacketLen(p.n)
	if !t.fits(n) {
		return false
	}
	id := 0
	if t.whole {
		id = t.count
	}
	if p.n <= copyLimit || p.again {
		b := t.buf[t.pos:]
		encode(p, b)
		t.to.tx.Seal(b[:n], uint16(id))
		t.pos += n
	} else {
		t.addLong(p, n, uint16(id))
	}
	t.total += n
	if !t.whole {
		t.cut()
		t.ends[t.count] = uint16(t.niov)
	}
	t.count++
	return true
}

// fits reserves a packet of n bytes. It returns false, without side effects, if the
// packet does not fit.
func (t *train) fits(n int) bool {
	if t.total+n > maxTrain || t.count == maxSegments || t.short {
		return false
	}
	switch {
	case t.count == 0:
		t.seg = n
	case !t.whole:
	case n > t.seg:
		return false
	case n < t.seg:
		t.short = true
	}
	return true
}

// addLong appends a packet whose payload is referenced, not copied.
func (t *train) addLong(p *packet, n int, id uint16) {
	b := t.buf[t.pos:]
	h := putHeaders(p, b)
	crc := t.to.tx.Start(b[:h], n, id)
	t.pos += h
	t.cut()
	for _, s := range p.sg[:p.nsg] {
		if len(s) > 0 {
			crc = wire.Update(crc, s)
			t.piece(s)
		}
	}
	b = b[h:]
	if pad := putPad(p.n, b); pad > 0 {
		crc = wire.Update(crc, b[:pad])
		b = b[pad:]
		t.pos += pad
	}
	binary.LittleEndian.PutUint32(b, crc)
	t.pos += wire.ICRCLen
}

// piece appends b, which is not empty, to iov.
func (t *train) piece(b []byte) {
	v := &t.iov[t.niov]
	v.Base = &b[0]
	v.SetLen(len(b))
	t.niov++
}

// cut appends to iov the part of buf that is not in it yet.
func (t *train) cut() {
	if t.pos > t.start {
		t.piece(t.buf[t.start:t.pos])
		t.start = t.pos
	}
}
