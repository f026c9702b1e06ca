package soft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// send is sendMost for a caller that has no use for the rest.
func (t *train) send() ucs.Status {
	_, st := t.sendMost()
	return st
}

// sendMost sends the packets and ends the train. It returns how many packets the
// socket took before the error.
//
//   - OK: all went, or were lost as a network may lose them.
//   - NoResource: the socket has no room for the rest now.
//   - TooLong: none went; one is longer than the path takes.
//   - Unreachable: none went; there is no way to the peer.
//
// hot: BenchmarkUDPPingPong
func (t *train) sendMost() (n int, st ucs.Status) {
	crossed()
	t.cut()
	if t.u.tap != nil {
		t.show()
	}
	var errno unix.Errno
	switch {
	case t.count == 0:
	case t.count == 1 || t.whole:
		if errno = t.sendOnce(); errno != 0 {
			errno = t.sendAgain(errno)
		}
	default:
		n, errno = t.sendSingles()
	}
	if errno != 0 {
		st = t.failed(errno)
	}
	if t.niov > 1 {
		clear(t.iov[:t.niov]) // lets go of the payloads
	}
	t.to = nil
	t.busy.Store(false)
	return n, st
}

// sendOnce tries to send all as one message: a packet in one piece by the call for
// which the kernel has the least to copy.
func (t *train) sendOnce() unix.Errno {
	if t.count == 1 && t.niov == 1 && t.to.tclass|t.to.hops == 0 {
		return rawSendto(t.u.fd, t.buf[:t.pos], &t.to.name, t.to.nameLen)
	}
	t.prepare(&t.msg, t.iov[:t.niov])
	return rawSendmsg(t.u.fd, &t.msg)
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
		if errno = t.sendOnce(); errno == 0 {
			break
		}
	}
	return errno
}

// sendSingles sends the packets as so many messages. It returns how many the
// socket took; the error is why it did not take the next one.
func (t *train) sendSingles() (done int, errno unix.Errno) {
	from := 0
	for i := range t.count {
		end := int(t.ends[i])
		t.prepare(&t.msgs[i].hdr, t.iov[from:end])
		from = end
	}
	for tries := 0; done < t.count; {
		n, errno := rawSendmmsg(t.u.fd, t.msgs[done:t.count])
		switch {
		case errno == 0:
			done += n
		case (errno == unix.EINTR || errno == unix.ECONNREFUSED) && tries < 2:
			tries++
		case done == 0 || noRoom(errno):
			return done, errno
		default: // no reason to send again those that went
			t.u.counts[udpTxLost].Add(uint64(t.count - done))
			return done, 0
		}
	}
	return done, 0
}

// noRoom reports whether the socket takes the same packet later.
func noRoom(errno unix.Errno) bool {
	return errno == unix.EAGAIN || errno == unix.ENOBUFS || errno == unix.ENOMEM
}

// failed counts an error and says what it means.
//
//go:noinline
func (t *train) failed(errno unix.Errno) ucs.Status {
	c := &t.u.counts
	if noRoom(errno) {
		c[udpTxAgain].Add(1)
		return ucs.NoResource
	}
	switch errno {
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
