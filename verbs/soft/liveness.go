package soft

import (
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
)

// PeerState implements verbs.PeerProber. Only a soft device replies to probes, and only over
// UDP can it end without this one.
func (d *device) PeerState(a *verbs.AHAttr, qpn verbs.QPN, lastReceived ucs.Time) verbs.PeerState {
	if d.kind != overUDP || d.isForeign(a.PeerFeatures) {
		return verbs.PeerUnknown
	}
	if a.SGIDIndex < 0 || a.SGIDIndex >= len(d.sockets) {
		return verbs.PeerUnknown
	}
	u := d.sockets[a.SGIDIndex]
	p, err := u.Peer(a.DGID, a.DLID)
	if err != nil {
		return verbs.PeerUnknown
	}
	s := u.PeerState(&p, qpn, lastReceived)
	if s == verbs.PeerUnknown && u.Unanswered(&p, qpn) {
		d.pauseRequests(&p)
	}
	return s
}

const (
	// requestPause is longer than the interval at which a program calls PeerState.
	requestPause = 250 * time.Millisecond
	// longRetry is the time of all retries above which requests are paused. Shorter ones end
	// as soon without a pause.
	longRetry = 4 * time.Second
)

// pauseRequests pauses the unacknowledged requests to a port, as an RNR NAK does. Each packet to a
// closed port would use up an ICMP error that the probes wait for. A queue pair that another
// goroutine owns is left out.
func (d *device) pauseRequests(p *udp.Peer) {
	now := d.clock()
	d.qps.each(func(q *qp) {
		if q.typ != verbs.RC || !q.tryAcquire() {
			return
		}
		r := &q.req
		if q.route.udp.SamePort(p) && r.una != r.psn && r.rnrWait >= 0 && r.timeout*time.Duration(r.retryCnt+1) > longRetry {
			r.rnrWait = max(r.rnrWait, now.Add(requestPause))
			q.e.setTimer(q, r.rnrWait)
		}
		q.transmitAndRelease()
	})
}
