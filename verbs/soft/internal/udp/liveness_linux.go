package udp

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Detection of the end of a peer.
//
// The kernel of a host replies to a datagram for a closed port with an ICMP error. The data
// socket never reports such errors (IP_RECVERR), because they would fail sends to live peers.
// So a probe is sent from a socket of its own, which is connected to the peer's port. A probe
// names a queue pair and carries a nonce. A live device replies whether it has that queue
// pair, with the same nonce (docs/wire/roce.md).
//
// Invariants:
//
//   - A queue pair is gone only after two refusals, at least probeInterval apart, without a
//     packet of the peer between. An ICMP error is a refusal, and so is the reply of another
//     process that owns the port now.
//   - An ICMP error counts only if it quotes the probe with its nonce. So a host that does not
//     see the probes cannot forge one.
//   - After a refusal the probe is sent from the data socket too. There it takes the path of
//     the packets, through all firewalls and address translation. So a live peer replies,
//     although a forger or a firewall has refused the first probe.
//
// A host sends six ICMP errors to another one at once, and then one a second. Packets of
// queue pairs cause such errors too, which are not reported. So while a probe is unanswered these
// packets are paused (Unanswered), and the probe is repeated often enough to get the next error.
const (
	probeInterval = 300 * time.Millisecond
	// probeRetry is the interval at which an unanswered probe is repeated. A live peer replies
	// in less.
	probeRetry = 100 * time.Millisecond
	// maxPause bounds the pause for each of both refusals: the time in which a host sends the
	// next ICMP error.
	maxPause = 1200 * time.Millisecond
	// probePace bounds the rate of probes. The interval at which live peers are probed is at
	// least so long for each of them.
	probePace = time.Millisecond
	// inquiryAge is the time after the last call of PeerState after which an inquiry ends and is
	// forgotten.
	inquiryAge = 2 * time.Second
)

// A probe and its replies have 12 bytes, less than any packet: kind, QPN u24, nonce.
const (
	probeLen      = 12
	probeQuestion = 1
	probePresent  = 2
	probeAbsent   = 3
)

// inquiryState is what the probes of a queue pair have shown:
//
//	inquiryOpen --refusal--> inquiryRefused --refusal--> inquiryGone
//
// A reply that the queue pair exists leads from the first two to inquiryPresent. A packet of the
// peer leads from all to inquiryOpen.
type inquiryState uint8

const (
	inquiryOpen inquiryState = iota
	inquiryRefused
	inquiryPresent
	inquiryGone
	numInquiryStates
)

// answer is a reaction to a probe.
type answer uint8

const (
	noAnswer         answer = iota
	answerPresent           // the queue pair exists
	answerPortClosed        // refusal: nothing receives at the port
	answerQPClosed          // refusal: the owner of the port has no such queue pair
	answerPacket            // the peer has sent something else
	numAnswers
)

// nextInquiryState is the table of transitions.
var nextInquiryState = [numInquiryStates][numAnswers]inquiryState{
	inquiryOpen:    {inquiryOpen, inquiryPresent, inquiryRefused, inquiryRefused, inquiryOpen},
	inquiryRefused: {inquiryRefused, inquiryPresent, inquiryGone, inquiryGone, inquiryOpen},
	inquiryPresent: {inquiryPresent, inquiryPresent, inquiryPresent, inquiryPresent, inquiryOpen},
	inquiryGone:    {inquiryGone, inquiryGone, inquiryGone, inquiryGone, inquiryOpen},
}

// inquiry is the probing of one queue pair. Its fields are guarded by prober.mu.
type inquiry struct {
	message   [probeLen]byte // changes only while no goroutine probes
	state     inquiryState
	refusal   answer       // the last one
	refusedAt ucs.Time     // time of the first refusal
	endedAt   ucs.Time     // time at which the last probing ended; 0: none did
	askedAt   ucs.Time     // time of the last call of PeerState
	begunAt   ucs.Time     // time of the first probe
	probing   bool         // a goroutine probes
	conn      *net.UDPConn // its socket, once that is open
}

// step takes an answer that arrived at now. A refusal too soon after the first one has no
// effect.
func (q *inquiry) step(a answer, now ucs.Time) {
	refusal := a == answerPortClosed || a == answerQPClosed
	was := q.state
	if refusal && was == inquiryRefused && now.Sub(q.refusedAt) < probeInterval {
		return
	}
	q.state = nextInquiryState[was][a]
	if refusal {
		q.refusal = a
	}
	if was == inquiryOpen && q.state == inquiryRefused {
		q.refusedAt = now
	}
}

// over reports whether the probing can end.
func (q *inquiry) over(now ucs.Time) bool {
	return q.state >= inquiryPresent || now.Sub(q.askedAt) >= inquiryAge
}

// probed identifies a queue pair that is probed.
type probed struct {
	port Source
	qpn  verbs.QPN
}

// prober is the part of a Socket that probes queue pairs of peers.
type prober struct {
	mu        sync.Mutex
	inquiries map[probed]*inquiry
	sweptAt   ucs.Time
	closed    bool
	running   sync.WaitGroup
}

// PeerState returns what is known of a queue pair at the port of peer. It starts to probe the
// queue pair, if that is not known to be gone. lastReceived is the time of the last packet that the
// caller has received from the peer.
//
// Concurrency: any goroutine. It sends nothing itself and does not wait.
func (u *Socket) PeerState(peer *Peer, qpn verbs.QPN, lastReceived ucs.Time) verbs.PeerState {
	r, now := &u.prober, ucs.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return verbs.PeerUnknown
	}
	if now.Sub(r.sweptAt) >= inquiryAge {
		r.sweptAt = now
		for t, q := range r.inquiries {
			if !q.probing && now.Sub(q.askedAt) >= inquiryAge {
				delete(r.inquiries, t)
			}
		}
	}
	t := probed{peer.src, qpn}
	q := r.inquiries[t]
	if q == nil {
		if r.inquiries == nil {
			r.inquiries = map[probed]*inquiry{}
		}
		q = new(inquiry)
		r.inquiries[t] = q
	}
	q.askedAt = now
	if lastReceived > q.refusedAt {
		q.step(answerPacket, now)
	}
	switch {
	case q.state == inquiryGone && q.refusal == answerQPClosed:
		return verbs.PeerQPClosed
	case q.state == inquiryGone:
		return verbs.PeerPortClosed
	case q.probing || q.endedAt != 0 && now.Sub(q.endedAt) < max(probeInterval, probePace*time.Duration(len(r.inquiries))):
		return verbs.PeerUnknown
	}
	q.state, q.probing, q.begunAt = inquiryOpen, true, now
	binary.BigEndian.PutUint32(q.message[:], probeQuestion<<24|uint32(qpn))
	_, _ = rand.Read(q.message[4:]) // never fails
	r.running.Add(1)
	go u.inquire(*peer, q)
	return verbs.PeerUnknown
}

// Unanswered reports whether a probe of a queue pair at the port of peer is unanswered for so long
// that the peer is most likely gone.
func (u *Socket) Unanswered(peer *Peer, qpn verbs.QPN) bool {
	r, now := &u.prober, ucs.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.inquiries[probed{peer.src, qpn}]
	if q == nil || !q.probing {
		return false
	}
	switch q.state {
	case inquiryOpen:
		return now.Sub(q.begunAt) >= probeRetry && now.Sub(q.begunAt) < maxPause
	case inquiryRefused:
		return now.Sub(q.refusedAt) < maxPause
	default: // inquiryPresent, inquiryGone
		return false
	}
}

// inquire probes a queue pair until the replies are conclusive, or PeerState has not been called for inquiryAge.
func (u *Socket) inquire(peer Peer, q *inquiry) {
	r := &u.prober
	defer r.running.Done()
	conn, err := u.dialPort(&peer)
	r.mu.Lock()
	q.conn = conn
	over := err != nil || r.closed
	r.mu.Unlock()
	for n := 0; !over; n++ {
		u.Counts[TxProbes].Add(1)
		if _, err := conn.Write(q.message[:]); err != nil { // the error of an earlier probe
			u.take(q, readRefusals(conn, q))
			_, _ = conn.Write(q.message[:])
		}
		if n == 1 { // a firewall may drop the probes of other sockets
			rawSendto(u.FD, q.message[:], &peer.sockaddr, peer.SockaddrLen)
		}
		var first bool
		if first, over = u.await(q, conn, probeRetry); !first {
			continue
		}
		for k := 0; k < 2 && !over; k++ {
			rawSendto(u.FD, q.message[:], &peer.sockaddr, peer.SockaddrLen)
			_, over = u.await(q, conn, probeInterval/2)
		}
	}
	r.mu.Lock()
	q.probing, q.conn, q.endedAt = false, nil, ucs.Now()
	r.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // nothing is lost with it
	}
}

// dialPort opens a socket that is connected to the peer's port and reports ICMP errors.
func (u *Socket) dialPort(peer *Peer) (*net.UDPConn, error) {
	level, name := unix.IPPROTO_IP, unix.IP_RECVERR
	if u.Addr.Addr().Is6() {
		level, name = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	zoned := func(a netip.AddrPort) *net.UDPAddr {
		to := net.UDPAddrFromAddrPort(a)
		if u.zone != 0 && a.Addr().IsLinkLocalUnicast() {
			to.Zone = strconv.FormatUint(uint64(u.zone), 10)
		}
		return to
	}
	d := net.Dialer{
		LocalAddr: zoned(netip.AddrPortFrom(u.Addr.Addr(), 0)),
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, name, 1) }), err)
		},
	}
	c, err := d.Dial("udp", zoned(peer.src.AddrPort()).String())
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

// await receives replies for d, or until one changes the state. It reports whether that was the first
// refusal, and whether the probing can end.
func (u *Socket) await(q *inquiry, conn *net.UDPConn, d time.Duration) (refused, over bool) {
	end := ucs.Now().Add(d)
	was, over := u.take(q, noAnswer)
	for state := was; ; {
		left := end.Sub(ucs.Now())
		if over || state != was || left <= 0 {
			return state == inquiryRefused && was == inquiryOpen, over
		}
		a := noAnswer
		var b [probeLen + 1]byte
		_ = conn.SetReadDeadline(time.Now().Add(left)) //nolint:forbidigo // the runtime's poller counts by it
		switch n, err := conn.Read(b[:]); {
		case err == nil && n == probeLen && bytes.Equal(b[1:probeLen], q.message[1:]):
			a = answerOf(b[0])
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			a = readRefusals(conn, q)
		}
		state, over = u.take(q, a)
	}
}

// take applies a reply or refusal to the state of the inquiry. It returns the state, and whether the probing can end.
func (u *Socket) take(q *inquiry, a answer) (inquiryState, bool) {
	now := ucs.Now()
	u.prober.mu.Lock()
	defer u.prober.mu.Unlock()
	q.step(a, now)
	return q.state, q.over(now) || u.prober.closed
}

// answerOf returns the answer that a reply of this kind is.
func answerOf(kind byte) answer {
	switch kind {
	case probePresent:
		return answerPresent
	case probeAbsent:
		return answerQPClosed
	}
	return noAnswer
}

// readRefusals empties the socket's queue of ICMP errors. It returns answerPortClosed if one of
// them refuses the port and quotes the probe.
func readRefusals(conn *net.UDPConn, q *inquiry) (a answer) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return noAnswer
	}
	var quoted [probeLen + 1]byte
	var control [256]byte
	_ = raw.Control(func(fd uintptr) { // an error means that the socket is closed
		for {
			n, m, _, _, err := unix.Recvmsg(int(fd), quoted[:], control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			for b := control[:m]; len(b) >= unix.SizeofCmsghdr; {
				level, name, data, rest := nextCmsg(b)
				b = rest
				own := level == unix.IPPROTO_IP && name == unix.IP_RECVERR || level == unix.IPPROTO_IPV6 && name == unix.IPV6_RECVERR
				// struct sock_extended_err begins with errno u32, origin u8.
				if own && len(data) >= 16 && binary.NativeEndian.Uint32(data) == uint32(unix.ECONNREFUSED) && data[4] != unix.SO_EE_ORIGIN_LOCAL &&
					bytes.Equal(quoted[:n], q.message[:]) {
					a = answerPortClosed
				}
			}
		}
	})
	return a
}

// handleProbe processes a datagram of probeLen bytes from the sender in name, whose length is n.
// It returns false if that is neither a probe nor a reply to one.
func (u *Socket) handleProbe(b []byte, name *[unix.SizeofSockaddrInet6]byte, n uint32) bool {
	from, ok := parseSockaddr(name, n)
	if !ok {
		return false
	}
	qpn := verbs.QPN(binary.BigEndian.Uint32(b) & 0xffffff)
	switch b[0] {
	case probeQuestion:
		if u.HasQP == nil {
			return true
		}
		var reply [probeLen]byte
		copy(reply[:], b)
		reply[0] = probeAbsent
		if u.HasQP(qpn) {
			reply[0] = probePresent
		}
		u.Counts[RxProbes].Add(1)
		rawSendto(u.FD, reply[:], name, uint8(n))
	case probePresent, probeAbsent: // to a probe from the data socket
		r, now := &u.prober, ucs.Now()
		r.mu.Lock()
		defer r.mu.Unlock()
		if q := r.inquiries[probed{from, qpn}]; q != nil && q.conn != nil && bytes.Equal(b[1:], q.message[1:]) {
			q.step(answerOf(b[0]), now)
			_ = q.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the goroutine
		}
	default:
		return false
	}
	return true
}

// stop ends all probing.
func (r *prober) stop() {
	r.mu.Lock()
	r.closed = true
	for _, q := range r.inquiries {
		if q.conn != nil {
			_ = q.conn.Close() // ends its reads
		}
	}
	r.mu.Unlock()
	r.running.Wait()
}
