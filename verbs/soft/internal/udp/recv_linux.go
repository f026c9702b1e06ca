package udp

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/verbs/wire"
)

// Limits of receiving.
const (
	// maxDatagrams is the most datagrams of one receive call.
	maxDatagrams = 8
	// maxBuffers is the most datagrams of a socket, including those held for queue pairs.
	// If all are held, it receives nothing until one is released.
	maxBuffers = 64
	// recvmmsgAfter receives in a row with a single packet each, Recv tries one call for
	// several datagrams: 64 packets of 8 bytes then cost a quarter less. Such a call
	// costs more if it finds only one datagram. Then the next try waits twice as long,
	// at most recvmmsgAfterMax.
	recvmmsgAfter    = 8
	recvmmsgAfterMax = 1024
)

// rxBuffer is what a receive call fills.
type rxBuffer struct {
	slot int // index of the message that receives into it, -1: none
	iov  unix.Iovec
	name [unix.SizeofSockaddrInet6]byte
	ctl  [128]byte
	buf  [1 << 16]byte // holds any datagram
}

// receiver is the receive state of a socket. It belongs to the holder of the receive
// token.
type receiver struct {
	msgs          [maxDatagrams]mmsghdr
	slots         [maxDatagrams]*Datagram // the datagram that each of msgs receives into
	datagrams     []*Datagram             // all datagrams of the socket
	streak        int                     // receives in a row with a single packet
	recvmmsgAfter int                     // recvmmsg is used from this streak on
	batch         [maxDatagrams]*Datagram
	// sources caches the ICRC prefixes of recent senders, by a hash of the sender.
	sources  [64]sourcePrefix
	overflow uint32 // the kernel's drop count at the last report
	// lacksBuffer is set when there was no free buffer.
	lacksBuffer bool
}

type sourcePrefix struct {
	from Source
	pre  wire.Prefix
}

// Recv receives one datagram from the socket, or several if it holds many (recvmmsg).
// It returns none if the socket is empty or what it received is not valid. It never
// blocks. The datagrams belong to the caller until the next Recv.
//
// Concurrency: the holder of the receive token.
//
//hot:bench BenchmarkUDPPingPong
func (u *Socket) Recv() []*Datagram {
	r := &u.rx
	if r.streak >= r.recvmmsgAfter {
		return u.recvmmsg()
	}
	if !r.prepare(u, 0) {
		return u.recvNothing()
	}
	m := &r.msgs[0]
	n, errno := rawRecvmsg(u.FD, &m.hdr)
	if errno != 0 {
		return u.recvFailed(errno)
	}
	m.n = uint32(n)
	d := r.slots[0]
	if !d.parseHeader(m) {
		return nil
	}
	r.streak++
	if d.seg < len(d.b) {
		r.streak = 0 // a batch is worth a call of its own
	}
	r.batch[0] = d
	return r.batch[:1]
}

// recvmmsg is Recv with one call for several datagrams.
func (u *Socket) recvmmsg() []*Datagram {
	r := &u.rx
	k := 0
	for k < maxDatagrams && r.prepare(u, k) {
		k++
	}
	if k == 0 {
		return u.recvNothing()
	}
	got, errno := rawRecvmmsg(u.FD, r.msgs[:k])
	if errno != 0 {
		return u.recvFailed(errno)
	}
	if got == 1 {
		r.streak, r.recvmmsgAfter = 0, min(2*r.recvmmsgAfter, recvmmsgAfterMax)
	} else {
		r.recvmmsgAfter = recvmmsgAfter
	}
	n := 0
	for i := range got {
		if d := r.slots[i]; d.parseHeader(&r.msgs[i]) {
			r.batch[n] = d
			n++
		}
	}
	return r.batch[:n]
}

// recvNothing is Recv without a free buffer.
func (u *Socket) recvNothing() []*Datagram {
	u.Counts[RxNoBuffer].Add(1)
	u.rx.lacksBuffer = true
	return nil
}

// LacksBuffer reports whether a Recv since the last call found no free buffer: all are held.
//
// Concurrency: the holder of the receive token.
func (u *Socket) LacksBuffer() bool {
	lacks := u.rx.lacksBuffer
	u.rx.lacksBuffer = false
	return lacks
}

// recvFailed counts an error of a receive call. No error ends receiving.
func (u *Socket) recvFailed(errno unix.Errno) []*Datagram {
	u.rx.streak = 0
	if errno != unix.EAGAIN {
		u.Counts[RxErrors].Add(1)
	}
	return nil
}

// prepare prepares message i to receive into a datagram without holds. It returns false if
// there is none.
func (r *receiver) prepare(u *Socket, i int) bool {
	d := r.slots[i]
	if d == nil || !d.unheld() {
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
// or a new one. If the socket has maxBuffers datagrams, it may be that of a later
// message. replace returns nil if all are held.
//
//go:noinline
func (r *receiver) replace(u *Socket, i int) *Datagram {
	var d *Datagram
	for _, x := range r.datagrams {
		if x.unheld() && (x.rx.slot < 0 || x.rx.slot > i && len(r.datagrams) == maxBuffers) {
			d = x
			break
		}
	}
	if d == nil {
		if len(r.datagrams) == maxBuffers {
			return nil
		}
		d = &Datagram{u: u}
		d.rx.slot = -1
		d.rx.iov.Base = &d.rx.buf[0]
		d.rx.iov.SetLen(len(d.rx.buf))
		r.datagrams = append(r.datagrams, d)
	}
	if at := d.rx.slot; at >= 0 {
		r.slots[at] = nil
	}
	if old := r.slots[i]; old != nil {
		old.rx.slot = -1
	}
	r.slots[i], d.rx.slot = d, i
	h := &r.msgs[i].hdr
	h.Name, h.Iov, h.Control = &d.rx.name[0], &d.rx.iov, &d.rx.ctl[0]
	h.SetIovlen(1)
	return d
}

// parseHeader takes over what the kernel reports about a received message. It returns false
// and counts the reason if this is no packet.
func (d *Datagram) parseHeader(m *mmsghdr) bool {
	raceSync()
	c := &d.u.Counts
	n := int(m.n)
	switch {
	case m.hdr.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || n > len(d.rx.buf):
		c[RxTruncated].Add(1)
		return false
	case n < MinPacket:
		if n != probeLen || !d.u.handleProbe(d.rx.buf[:n], &d.rx.name, m.hdr.Namelen) {
			c[RxShort].Add(1)
		}
		return false
	}
	from, ok := parseSockaddr(&d.rx.name, m.hdr.Namelen)
	if !ok {
		c[RxFamily].Add(1)
		return false
	}
	d.From, d.b, d.seg, d.TOS, d.TTL = from, d.rx.buf[:n], n, 0, 0
	d.Flow = 0
	if k := int(m.hdr.Controllen); k > 0 {
		d.parseControl(d.rx.ctl[:min(k, len(d.rx.ctl))])
	}
	if d.seg < MinPacket {
		c[RxShort].Add(1)
		return false
	}
	x := &d.u.rx.sources[(from.lo^from.hi^uint64(from.port)<<32)*0x9e3779b97f4a7c15>>58]
	if x.from != from {
		x.from, x.pre = from, wire.NewPrefix(from.AddrPort(), d.u.Addr)
	}
	d.Prefix = x.pre
	if d.u.Tap != nil {
		d.tapPackets()
	}
	return true
}

// parseControl reads the control data of a message. Unknown messages are skipped.
func (d *Datagram) parseControl(b []byte) {
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
			d.TOS = lowByte(data)
		case level == unix.IPPROTO_IP && name == unix.IP_TTL, level == unix.IPPROTO_IPV6 && name == unix.IPV6_HOPLIMIT:
			d.TTL = lowByte(data)
		case level == unix.IPPROTO_IPV6 && name == ipv6FlowInfo && len(data) >= 4:
			d.Flow = binary.BigEndian.Uint32(data) & 0xfffff
		case level == unix.SOL_SOCKET && name == unix.SO_RXQ_OVFL && len(data) >= 4:
			// The kernel's count for this socket; it wraps.
			n := binary.NativeEndian.Uint32(data)
			d.u.Counts[RxOverflow].Add(uint64(n - d.u.rx.overflow))
			d.u.rx.overflow = n
		}
	}
}
