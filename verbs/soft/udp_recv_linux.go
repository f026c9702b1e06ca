package soft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/verbs/wire"
)

// Limits of receiving.
const (
	// maxDatagrams is the most datagrams of one receive call.
	maxDatagrams = 8
	// maxBuffers is the most datagrams of a port, including those held for queue pairs.
	// If all are held, it receives nothing until one is released.
	maxBuffers = 64
	// manyAfter receives in a row with a single packet each, recv tries one call for
	// several datagrams: 64 packets of 8 bytes then cost a quarter less. Such a call
	// costs more if it finds only one datagram. Then the next try waits twice as long,
	// at most manyMax.
	manyAfter = 8
	manyMax   = 1024
)

// rxMemory is what a receive call fills.
type rxMemory struct {
	at   int // index of the message that receives into it, -1: none
	iov  unix.Iovec
	name [unix.SizeofSockaddrInet6]byte
	ctl  [128]byte
	buf  [1 << 16]byte // holds any datagram
}

// receiver is the receive state of a port. It belongs to the holder of the receive
// token.
type receiver struct {
	msgs   [maxDatagrams]mmsghdr
	ready  [maxDatagrams]*datagram // the datagram that each of msgs receives into
	all    []*datagram             // all datagrams of the port
	streak int                     // receives in a row with a single packet
	many   int                     // recvMany is used from this streak on
	batch  [maxDatagrams]*datagram
	// sources caches the ICRC prefixes of recent senders, by a hash of the sender.
	sources  [64]sourcePrefix
	overflow uint32 // the kernel's drop count at the last report
}

type sourcePrefix struct {
	from udpSource
	pre  wire.Prefix
}

func (r *receiver) init(u *udpPort) {
	r.all = make([]*datagram, 0, maxBuffers)
	r.many = manyAfter
	r.arm(u, 0)
}

// recv receives one datagram from the socket, or several if it holds many (recvMany).
// It returns none if the socket is empty or what it received is not valid. It never
// blocks. The datagrams belong to the caller until the next recv.
//
// Concurrency: the holder of the receive token.
// hot: BenchmarkUDPPingPong
func (u *udpPort) recv() []*datagram {
	r := &u.rx
	if r.streak >= r.many {
		return u.recvMany()
	}
	if !r.arm(u, 0) {
		u.counts[udpRxNoBuffer].Add(1)
		return nil
	}
	m := &r.msgs[0]
	n, errno := rawRecvmsg(u.fd, &m.hdr)
	if errno != 0 {
		return u.recvFailed(errno)
	}
	m.n = uint32(n)
	d := r.ready[0]
	if !d.fill(m) {
		return nil
	}
	r.streak++
	if d.seg < len(d.b) {
		r.streak = 0 // a batch is worth a call of its own
	}
	r.batch[0] = d
	return r.batch[:1]
}

// recvMany is recv with one call for several datagrams.
func (u *udpPort) recvMany() []*datagram {
	r := &u.rx
	k := 0
	for k < maxDatagrams && r.arm(u, k) {
		k++
	}
	if k == 0 {
		u.counts[udpRxNoBuffer].Add(1)
		return nil
	}
	got, errno := rawRecvmmsg(u.fd, r.msgs[:k])
	if errno != 0 {
		return u.recvFailed(errno)
	}
	if got == 1 {
		r.streak, r.many = 0, min(2*r.many, manyMax)
	} else {
		r.many = manyAfter
	}
	n := 0
	for i := range got {
		if d := r.ready[i]; d.fill(&r.msgs[i]) {
			r.batch[n] = d
			n++
		}
	}
	return r.batch[:n]
}

// recvFailed counts an error of a receive call. No error ends receiving.
func (u *udpPort) recvFailed(errno unix.Errno) []*datagram {
	u.rx.streak = 0
	if errno != unix.EAGAIN {
		u.counts[udpRxErrors].Add(1)
	}
	return nil
}

// arm prepares message i to receive into a datagram without holds. It returns false if
// there is none.
func (r *receiver) arm(u *udpPort, i int) bool {
	d := r.ready[i]
	if d == nil || !d.free() {
		if d = r.replace(u, i); d == nil {
			return false
		}
	}
	h := &r.msgs[i].hdr
	h.Namelen = uint32(len(d.rx.name))
	h.SetControllen(len(d.rx.ctl))
	return true
}

// replace assigns another datagram without holds to message i. It is an unassigned one
// or a new one. If the port has maxBuffers datagrams, it may be that of a later
// message. replace returns nil if all are held.
//
//go:noinline
func (r *receiver) replace(u *udpPort, i int) *datagram {
	var d *datagram
	for _, x := range r.all {
		if x.free() && (x.rx.at < 0 || x.rx.at > i && len(r.all) == maxBuffers) {
			d = x
			break
		}
	}
	if d == nil {
		if len(r.all) == maxBuffers {
			return nil
		}
		d = newDatagram(u)
		r.all = append(r.all, d)
	}
	if at := d.rx.at; at >= 0 {
		r.ready[at] = nil
	}
	if old := r.ready[i]; old != nil {
		old.rx.at = -1
	}
	r.ready[i], d.rx.at = d, i
	h := &r.msgs[i].hdr
	h.Name, h.Iov, h.Control = &d.rx.name[0], &d.rx.iov, &d.rx.ctl[0]
	h.SetIovlen(1)
	return d
}

func newDatagram(u *udpPort) *datagram {
	d := &datagram{u: u}
	d.rx.at = -1
	d.rx.iov.Base = &d.rx.buf[0]
	d.rx.iov.SetLen(len(d.rx.buf))
	return d
}

// fill takes over what the kernel reports about a received message. It returns false
// and counts the reason if this is no packet.
func (d *datagram) fill(m *mmsghdr) bool {
	c := &d.u.counts
	n := int(m.n)
	switch {
	case m.hdr.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || n > len(d.rx.buf):
		c[udpRxTruncated].Add(1)
		return false
	case n < minPacket:
		c[udpRxShort].Add(1)
		return false
	}
	from, ok := parseName(&d.rx.name, m.hdr.Namelen)
	if !ok {
		c[udpRxFamily].Add(1)
		return false
	}
	d.from, d.b, d.seg, d.tos, d.ttl = from, d.rx.buf[:n], n, 0, 0
	if k := int(m.hdr.Controllen); k > 0 {
		d.control(d.rx.ctl[:min(k, len(d.rx.ctl))])
	}
	if d.seg < minPacket {
		c[udpRxShort].Add(1)
		return false
	}
	d.pre = d.u.rx.prefix(d.u, &from)
	return true
}

// control reads the control data of a message. Unknown messages are skipped.
func (d *datagram) control(b []byte) {
	for len(b) >= unix.SizeofCmsghdr {
		level, name, data, rest := nextCmsg(b)
		b = rest
		switch {
		case len(data) == 0:
		case level == unix.SOL_UDP && name == unix.UDP_GRO && len(data) >= 4:
			if n := int(int32(binary.NativeEndian.Uint32(data))); n > 0 && n < len(d.b) {
				d.seg = n
			}
		case level == unix.IPPROTO_IP && name == unix.IP_TOS, level == unix.IPPROTO_IPV6 && name == unix.IPV6_TCLASS:
			d.tos = lowByte(data)
		case level == unix.IPPROTO_IP && name == unix.IP_TTL, level == unix.IPPROTO_IPV6 && name == unix.IPV6_HOPLIMIT:
			d.ttl = lowByte(data)
		case level == unix.SOL_SOCKET && name == unix.SO_RXQ_OVFL && len(data) >= 4:
			d.u.rx.overflowed(d.u, binary.NativeEndian.Uint32(data))
		}
	}
}

// overflowed updates the drop counter from the kernel's count for this socket, which
// wraps.
func (r *receiver) overflowed(u *udpPort, n uint32) {
	u.counts[udpRxOverflow].Add(uint64(n - r.overflow))
	r.overflow = n
}

// prefix returns the ICRC prefix of a sender.
func (r *receiver) prefix(u *udpPort, from *udpSource) wire.Prefix {
	h := (from.lo ^ from.hi ^ uint64(from.port)<<32) * 0x9e3779b97f4a7c15 >> 58
	s := &r.sources[h]
	if s.from != *from {
		s.from, s.pre = *from, wire.NewPrefix(from.addrPort(), u.addr)
	}
	return s.pre
}
