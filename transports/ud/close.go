package ud

import (
	"errors"
	"fmt"
	"time"

	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
)

// Close notifies all peers. It waits a bounded time until they have acknowledged
// everything that was accepted.
func (f *iface) Close() error {
	if f.ProgressDepth > 0 {
		return fmt.Errorf("close ud iface from one of its callbacks: %w", ucs.ErrBusy)
	}
	f.EnterWait()
	if f.closed {
		f.Leave()
		return nil
	}
	for _, e := range f.eps {
		if e != nil {
			e.sendEnd(arq.EndAll)
			e.status, e.opStatus = ucs.Closed, ucs.Closed
		}
	}
	f.closed, f.mux.Closed = true, true
	f.ProgressDepth++ // no callback runs from here on
	f.shutdownPeers()
	f.ProgressDepth--
	f.Leave()
	if f.group != nil {
		f.group.Remove(f.statsName)
	}
	err := f.release()
	f.d.IfaceClosed()
	return err
}

// silentPeerTimeout is how long Close waits for a peer that sends nothing, if only Bye or End is
// unacknowledged.
const silentPeerTimeout = 100 * time.Millisecond

// echoWait bounds how long Close waits for its own datagram, which a lossy link may drop.
const echoWait = 5 * time.Millisecond

// shutdownPeers sends Bye to the senders of all received flows, and repeats it. It returns when
// every responsive peer has answered and everything sent is acknowledged, or after the
// time-out.
//
// It also sends a datagram to its own queue pair. Every Connect that arrived earlier has
// been answered by the time that datagram is received.
func (f *iface) shutdownPeers() {
	now := ucs.Now()
	echoEnd := now.Add(echoWait)
	if ah, err := f.d.PD().CreateAH(f.self.port.AH(1)); err == nil {
		echo := arq.CloseReply(&arq.Header{}) // To is no flow
		f.sendControl(&peer{addr: f.self, ah: ah.ID()}, &echo, nil)
		f.flushPosts()
		_ = ah.Close() // what was posted is still sent
	} else {
		echoEnd = 0
	}
	began, end, nextClose := now, now.Add(f.linger), now
	lastRecv := map[verbs.QPN]ucs.Time{} // time of the last packet from each queue pair
	silent := map[*endpoint]bool{}       // several probes were unanswered before
	for _, e := range f.eps {
		if e != nil && e.s.Unresponsive() {
			silent[e] = true
		}
	}
	for {
		if now >= nextClose {
			nextClose = now.Add(max(f.conf.MinRTO, f.linger/50))
			f.mux.EachReceiver(func(r *arq.Receiver) {
				h := arq.CloseHeader(r)
				f.sendControl(f.peers[r.Peer], &h, nil)
			})
		}
		if n := f.recvCQ.Poll(f.recvWCs[:]); n > 0 {
			for i := range f.recvWCs[:n] {
				lastRecv[f.recvWCs[i].SrcQP] = now
				if f.recvWCs[i].SrcQP == f.self.qpn {
					echoEnd = 0
				}
			}
			f.processRecvs(f.recvWCs[:n])
			for _, d := range f.descs[f.delivered:] { // no handler is called any more
				if d.Flags&descRxEnd == 0 {
					f.freeRecvs = append(f.freeRecvs, uint32(d.Handle))
				}
			}
			f.descs, f.delivered = f.descs[:0], 0
			f.repost()
		} else {
			cpu.Yield()
		}
		f.now, f.peerSearches = now, 0
		f.flushACKs()
		f.pollSendCQ()
		if now >= f.nextDeadline {
			f.expireTimers()
		}
		f.flushPosts()
		if now >= end || now >= echoEnd && !f.hasUnanswered(silent, func(p *peer) bool {
			return now.Sub(max(began, lastRecv[p.addr.qpn])) < silentPeerTimeout
		}) {
			return
		}
		now = ucs.Now()
	}
}

// hasUnanswered reports whether Close must wait longer. It waits for endpoints with
// unacknowledged messages, unless they were silent before, and for responsive peers.
func (f *iface) hasUnanswered(silent map[*endpoint]bool, responsive func(*peer) bool) (yes bool) {
	for _, e := range f.eps {
		if e != nil && !e.removed && (!silent[e] && e.s.HasUnacked() || responsive(e.p)) {
			return true
		}
	}
	f.mux.EachReceiver(func(r *arq.Receiver) {
		yes = yes || !r.Ended() && responsive(f.peers[r.Peer])
	})
	return yes
}

// release frees all resources.
func (f *iface) release() (err error) {
	err = errors.Join(f.CloseSection(), f.closeQP())
	for _, ah := range f.ahs {
		err = errors.Join(err, ah.Close())
	}
	err = errors.Join(err, f.tx.close())
	if f.rx != nil {
		err = errors.Join(err, f.rx.CloseRetained(f.retained))
	}
	if f.thread != nil {
		err = errors.Join(err, f.thread.Close())
	}
	if f.wake != nil {
		err = errors.Join(err, f.wake.Close())
	}
	if f.channel != nil {
		err = errors.Join(err, f.channel.Close())
	}
	return err
}
