package soft

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// maxIov is the most pieces of a train: headers, pieces and ICRC of each packet.
const maxIov = maxSegments * (2 + verbs.MaxSGE)

// train is the scratch of one send: up to 64 packets to one peer, which go out by
// one system call. With segmentation all are of one length but for the last,
// which may be shorter; their IPv4 identifications count from 0.
//
//	iov  | BTH RETH | payload of an MR | ICRC BTH | payload | ICRC BTH 8 bytes ICRC |
//	       `- buf -'                     `- buf -'            `------- buf -------'
//
// Ownership: the goroutine that called udpPort.train, until send. The payloads
// are held until then.
type train struct {
	busy  atomic.Bool
	u     *udpPort
	to    *udpPeer
	whole bool // segmented by the system
	short bool // the last is in
	count int
	seg   int // length of the first packet, ICRC included
	total int // bytes of all
	pos   int // bytes of buf in use
	start int // where in buf the piece begins that is not in iov yet
	niov  int
	msg   unix.Msghdr
	ctl   [128]byte
	iov   [maxIov]unix.Iovec
	ends  [maxSegments]uint16 // niov behind each packet, where not whole
	msgs  [maxSegments]mmsghdr
	buf   [1 << 16]byte
}

// trainPool is a port's scratch. A sender that finds all of it taken makes its
// own: it may hold what others wait for, so it must not wait.
type trainPool [8]atomic.Pointer[train]

// train begins a train to a peer, who stays where it is until send.
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

// newTrain makes scratch, which is busy, and leaves it in the pool where there
// is a place.
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
	t.whole = t.u.gso.Load() && !to.single
	t.short = false
	t.count, t.seg, t.total, t.pos, t.start, t.niov = 0, 0, 0, 0, 0, 0
}

// room is how many packets more with n bytes from BTH to ICRC fit in.
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

// add puts a packet behind the others. false: it does not fit in, and nothing
// happened.
// hot: BenchmarkUDPPingPong
func (t *train) add(p *packet) bool {
	n := p.op.Info().PacketLen(p.n)
	if t.total+n > maxTrain || t.count == maxSegments || t.short {
		return false
	}
	id := 0
	switch {
	case t.count == 0:
		t.seg = n
	case !t.whole:
	case n > t.seg:
		return false
	case n < t.seg:
		t.short = true
	}
	if t.whole {
		id = t.count
	}
	if p.n <= copyLimit {
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

// addLong puts a packet in whose payload is not copied.
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

// piece puts b, which is not empty, in the list.
func (t *train) piece(b []byte) {
	v := &t.iov[t.niov]
	v.Base = &b[0]
	v.SetLen(len(b))
	t.niov++
}

// cut puts in the list what of buf is not in it yet.
func (t *train) cut() {
	if t.pos > t.start {
		t.piece(t.buf[t.start:t.pos])
		t.start = t.pos
	}
}

// send sends the packets and ends the train.
//
//   - OK: they went, or were lost as a network may lose them.
//   - NoResource: none went; the socket has no room for them now.
//   - TooLong: none went; one is longer than the path takes.
//   - Unreachable: none went; there is no way to the peer.
//
// hot: BenchmarkUDPPingPong
func (t *train) send() ucs.Status {
	t.cut()
	var errno unix.Errno
	switch {
	case t.count == 0:
	case t.count == 1 || t.whole:
		t.prepare(&t.msg, t.iov[:t.niov])
		if errno = rawSendmsg(t.u.fd, &t.msg); errno != 0 {
			errno = t.sendAgain(errno)
		}
	default:
		errno = t.sendSingles()
	}
	st := ucs.OK
	if errno != 0 {
		st = t.failed(errno)
	}
	if t.niov > 1 {
		clear(t.iov[:t.niov]) // lets go of the payloads
	}
	t.to = nil
	t.busy.Store(false)
	return st
}

// prepare fills the header of a message of the pieces iov.
func (t *train) prepare(m *unix.Msghdr, iov []unix.Iovec) {
	m.Name, m.Namelen = &t.to.name[0], uint32(t.to.nameLen)
	m.Iov = &iov[0]
	m.SetIovlen(len(iov))
	m.Control = nil
	m.SetControllen(0)
	if t.count > 1 && t.whole || t.to.tclass|t.to.hops != 0 {
		m.Control = &t.ctl[0]
		m.SetControllen(t.control())
	}
}

// control writes the control data of a message and gives their length.
func (t *train) control() int {
	b := t.ctl[:0]
	if t.count > 1 && t.whole {
		b = putCmsg(b, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
		binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], uint16(t.seg))
	}
	level, tos, ttl := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL
	if t.to.nameLen != unix.SizeofSockaddrInet4 {
		level, tos, ttl = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_HOPLIMIT
	}
	for _, c := range [2]struct {
		name  int
		value uint8
	}{{tos, t.to.tclass}, {ttl, t.to.hops}} {
		if c.value != 0 {
			at := len(b)
			b = putCmsg(b, level, c.name, 4)
			binary.NativeEndian.PutUint32(b[at+unix.CmsgLen(0):], uint32(c.value))
		}
	}
	return len(b)
}

// sendAgain sends once more where the first try was told of something past: a
// signal, or a port that an earlier packet did not find.
//
//go:noinline
func (t *train) sendAgain(errno unix.Errno) unix.Errno {
	for range 2 {
		switch errno {
		case unix.EINTR:
		case unix.ECONNREFUSED:
			t.u.counts[udpTxRefused].Add(1)
		default:
			return errno
		}
		if errno = rawSendmsg(t.u.fd, &t.msg); errno == 0 {
			break
		}
	}
	return errno
}

// sendSingles sends the packets as so many messages. Where the socket takes only
// some, the others are lost.
func (t *train) sendSingles() unix.Errno {
	from := 0
	for i := range t.count {
		end := int(t.ends[i])
		t.prepare(&t.msgs[i].hdr, t.iov[from:end])
		from = end
	}
	done := 0
	for tries := 0; done < t.count; {
		n, errno := rawSendmmsg(t.u.fd, t.msgs[done:t.count])
		if errno == 0 {
			done += n
			continue
		}
		if (errno == unix.EINTR || errno == unix.ECONNREFUSED) && tries < 2 {
			tries++
			continue
		}
		if done == 0 {
			return errno
		}
		t.u.counts[udpTxLost].Add(uint64(t.count - done))
		return 0
	}
	return 0
}

// failed counts an error and says what it means.
//
//go:noinline
func (t *train) failed(errno unix.Errno) ucs.Status {
	c := &t.u.counts
	switch errno {
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
		c[udpTxAgain].Add(1)
		return ucs.NoResource
	case unix.EMSGSIZE:
		c[udpTxTooLong].Add(1)
		return ucs.TooLong
	case unix.EIO:
		// The way out cannot segment; later trains go as single packets. The
		// identifications are sealed in, so this one is lost.
		c[udpTxUnsegmented].Add(1)
		t.u.gso.Store(false)
		c[udpTxLost].Add(uint64(t.count))
		return ucs.OK
	case unix.ECONNREFUSED:
		c[udpTxRefused].Add(1)
		c[udpTxLost].Add(uint64(t.count))
		return ucs.OK
	default:
		c[udpTxUnreachable].Add(1)
		return ucs.Unreachable
	}
}
