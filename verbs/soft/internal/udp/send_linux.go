package udp

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// send is SendMost for a caller that does not retry packets.
func (t *Batch) Send() ucs.Status {
	_, st := t.SendMost()
	return st
}

// SendMost sends the batch and releases it. On NoResource, n is the number of packets
// that the socket accepted.
//
//   - OK: all were sent, or lost as on a network.
//   - NoResource: the socket has no room for the rest now.
//   - TooLong: none was sent; one is longer than the path MTU.
//   - Unreachable: none was sent; there is no route to the peer.
//
//hot:bench BenchmarkUDPPingPong
func (t *Batch) SendMost() (n int, st ucs.Status) {
	raceSync()
	t.flushBuf()
	if t.u.Tap != nil {
		t.tapPackets()
	}
	var errno unix.Errno
	switch {
	case t.Count == 0:
	case t.Count == 1 || t.State != Singles:
		if errno = t.sendOnce(); errno != 0 {
			errno = t.retrySend(errno)
		}
	default:
		n, errno = t.sendSingles()
	}
	if errno != 0 {
		st = t.sendStatus(errno)
	}
	if t.niov > 1 {
		clear(t.iov[:t.niov]) // drops the references to the payloads
	}
	t.Peer = nil
	t.busy.Store(false)
	return n, st
}

// sendOnce tries to send the batch as one message. For a single packet in one piece it
// uses sendto, for which the kernel copies least.
func (t *Batch) sendOnce() unix.Errno {
	if t.Count == 1 && t.niov == 1 && t.Peer.tclass|t.Peer.ttl == 0 {
		return rawSendto(t.u.FD, t.Buf[:t.Pos], &t.Peer.sockaddr, t.Peer.SockaddrLen)
	}
	t.fillHeader(&t.msg, t.iov[:t.niov])
	return rawSendmsg(t.u.FD, &t.msg)
}

// fillHeader fills a message header for the pieces iov, and its control data in ctl.
func (t *Batch) fillHeader(m *unix.Msghdr, iov []unix.Iovec) {
	m.Name, m.Namelen = &t.Peer.sockaddr[0], uint32(t.Peer.SockaddrLen)
	m.Iov = &iov[0]
	m.SetIovlen(len(iov))
	m.Control = nil
	m.SetControllen(0)
	if (t.Count == 1 || t.State == Singles) && t.Peer.tclass|t.Peer.ttl == 0 {
		return
	}
	b := t.ctl[:0]
	if t.Count > 1 && t.State != Singles {
		b = putCmsg(b, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
		binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], uint16(t.segLen))
	}
	level, tos, ttl := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL
	if t.Peer.SockaddrLen != unix.SizeofSockaddrInet4 {
		level, tos, ttl = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_HOPLIMIT
	}
	for _, c := range [2]struct {
		name  int
		value uint8
	}{{tos, t.Peer.tclass}, {ttl, t.Peer.ttl}} {
		if c.value != 0 {
			at := len(b)
			b = putCmsg(b, level, c.name, 4)
			binary.NativeEndian.PutUint32(b[at+unix.CmsgLen(0):], uint32(c.value))
		}
	}
	m.Control = &t.ctl[0]
	m.SetControllen(len(b))
}

// retrySend repeats the send while the error concerns something earlier: a signal, or
// an ICMP error of an earlier packet. It tries at most twice.
//
//go:noinline
func (t *Batch) retrySend(errno unix.Errno) unix.Errno {
	for range 2 {
		switch errno {
		case unix.EINTR:
		case unix.ECONNREFUSED:
			t.u.Counts[TxRefused].Add(1)
		default:
			return errno
		}
		if errno = t.sendOnce(); errno == 0 {
			break
		}
	}
	return errno
}

// sendSingles sends each packet as a message of its own. It returns how many the socket
// accepted; the error is why it did not accept the next one.
func (t *Batch) sendSingles() (done int, errno unix.Errno) {
	from := 0
	for i := range t.Count {
		end := int(t.iovEnds[i])
		t.fillHeader(&t.msgs[i].hdr, t.iov[from:end])
		from = end
	}
	for tries := 0; done < t.Count; {
		n, errno := rawSendmmsg(t.u.FD, t.msgs[done:t.Count])
		switch {
		case errno == 0:
			done += n
		case (errno == unix.EINTR || errno == unix.ECONNREFUSED) && tries < 2:
			tries++
		case done == 0 || noRoom(errno):
			return done, errno
		default: // do not retransmit the accepted packets
			t.u.Counts[TxLost].Add(uint64(t.Count - done))
			return done, 0
		}
	}
	return done, 0
}

// noRoom reports whether the socket may accept the same packet later.
func noRoom(errno unix.Errno) bool {
	return errno == unix.EAGAIN || errno == unix.ENOBUFS || errno == unix.ENOMEM
}

// sendStatus counts an error and returns the status for it.
//
//go:noinline
func (t *Batch) sendStatus(errno unix.Errno) ucs.Status {
	c := &t.u.Counts
	if noRoom(errno) {
		c[TxAgain].Add(1)
		return ucs.NoResource
	}
	switch errno {
	case unix.EMSGSIZE:
		c[TxTooLong].Add(1)
		return ucs.TooLong
	case unix.EIO:
		// The outgoing interface cannot segment; later batches are sent as single
		// packets. The ICRCs of this one cover the identifications of a batch, so it is
		// lost.
		c[TxUnsegmented].Add(1)
		t.u.GSO.Store(false)
		c[TxLost].Add(uint64(t.Count))
		return ucs.OK
	case unix.ECONNREFUSED:
		c[TxRefused].Add(1)
		c[TxLost].Add(uint64(t.Count))
		return ucs.OK
	default:
		c[TxUnreachable].Add(1)
		return ucs.Unreachable
	}
}
