package ud

import (
	"errors"
	"fmt"
	"time"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
)

const (
	// silentPeerTimeout is how long Close waits for a peer that sends nothing, if only Close or End
	// packets are unacknowledged.
	silentPeerTimeout = 100 * time.Millisecond
	// echoWait bounds how long Close waits for its own datagram, which a lossy link may drop.
	echoWait = 5 * time.Millisecond
)

// Close ends all flows: it sends End to the receivers of those that this side sends, and Close to
// the senders of the others, which it repeats. It returns when every responsive peer has replied
// and everything sent is acknowledged, or after the linger time-out.
//
// It also sends a datagram to its own queue pair. Every Connect that arrived earlier has
// got its reply by the time that datagram is received.
func (f *iface) Close() error {
	if f.ProgressDepth > 0 {
		return fmt.Errorf("close ud iface from one of its callbacks: %w", ucs.ErrBusy)
	}
	f.EnterWait()
	if f.state == ifaceClosed {
		f.Leave()
		return nil
	}
	f.now = ucs.Now()
	f.flushACKs()                  // before any End: the peers know what arrived
	silent := map[*endpoint]bool{} // several probes were unanswered before
	for _, e := range f.eps {
		if e != nil {
			e.sendEnd(arq.EndAll)
			e.status, e.opStatus = ucs.Closed, ucs.Closed
			e.state.change(epStop)
		}
		if e != nil && e.s.Unresponsive() {
			silent[e] = true
		}
	}
	f.state, f.mux.Closed = ifaceClosed, true
	f.ProgressDepth++ // no callback runs from here on

	now := ucs.Now()
	began, end, nextClose, echoEnd := now, now.Add(f.linger), now, now.Add(echoWait)
	if ah, err := f.d.PD().CreateAH(f.d.AH(f.port, &f.self.Port)); err == nil {
		echo := arq.CloseReply(&arq.Header{}) // To is no flow
		f.sendControl(&peer{addr: f.self, ah: ah.ID()}, &echo, nil)
		f.flushPosts()
		_ = ah.Close() // what was posted is still sent
	} else {
		echoEnd = 0
	}
	lastRecv := map[verbs.QPN]ucs.Time{} // time of the last packet from each queue pair
	responsive := func(p *peer) bool { return now.Sub(max(began, lastRecv[p.addr.QPN])) < silentPeerTimeout }
	// unanswered reports whether Close must wait longer: for endpoints with unacknowledged
	// messages, unless they were silent before, and for responsive peers.
	unanswered := func() (yes bool) {
		for _, e := range f.eps {
			if e != nil && e.state != epDetached && (!silent[e] && e.s.HasUnacked() || responsive(e.p)) {
				return true
			}
		}
		f.mux.EachReceiver(func(r *arq.Receiver) {
			yes = yes || !r.Ended() && responsive(f.peers[r.Peer])
		})
		return yes
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
				if f.recvWCs[i].SrcQP == f.self.QPN {
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
		if now >= end || now >= echoEnd && !unanswered() {
			break
		}
		now = ucs.Now()
	}
	f.ProgressDepth--
	f.Leave()

	if f.group != nil {
		f.group.Remove(f.statsName)
	}
	err := f.release()
	f.d.IfaceClosed()
	return err
}

// release frees all resources.
func (f *iface) release() (err error) {
	err = errors.Join(f.d.Unwatch(&f.watcher), f.CloseSection())
	if f.qp != nil {
		err = errors.Join(err, f.qp.Close())
	}
	for _, cq := range []verbs.CQ{f.sendCQ, f.recvCQ} {
		if cq != nil {
			err = errors.Join(err, cq.Close())
		}
	}
	for _, ah := range f.ahs {
		err = errors.Join(err, ah.Close())
	}
	for _, s := range []*nic.Slab{f.tx.small.Slab, f.tx.long.Slab} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
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
