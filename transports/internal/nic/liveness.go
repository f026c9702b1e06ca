package nic

import (
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

const (
	// maxSilence is the silence after which a peer is probed while something waits for it.
	maxSilence = 300 * time.Millisecond
	// LongSilence is the silence after which probes have shown that the peer is gone, if it is and
	// they can.
	LongSilence = time.Second
	// checkInterval is the interval at which the peers of an interface are checked. With very many
	// connections it is checkPace for each.
	checkInterval = 100 * time.Millisecond
	checkPace     = 20 * time.Microsecond
)

// ChecksPeers reports whether the device detects that a peer is gone.
func (d *Domain) ChecksPeers() bool { return d.prober != nil }

// PeerState returns what the device knows of a peer's QP. It starts to probe the QP if that is not
// known to be gone. Since silence the peer has sent nothing.
func (d *Domain) PeerState(port uint8, to *PortAddress, qpn verbs.QPN, silence *Silence) verbs.PeerState {
	a := d.AH(port, to)
	return d.prober.PeerState(&a, qpn, silence.since)
}

// CheckTimer determines when an interface checks its peers.
type CheckTimer struct {
	next  ucs.Time
	waits bool // something waited for a peer at the last check
}

// Start reports whether a check of n connections is due, and begins it.
func (t *CheckTimer) Start(now ucs.Time, n int) bool {
	if now < t.next {
		return false
	}
	t.next, t.waits = now.Add(max(checkInterval, time.Duration(n)*checkPace)), false
	return true
}

// Within returns the time until the next check. 0: the last check was now, and nothing waited for
// a peer.
func (t *CheckTimer) Within(now ucs.Time, checked bool) time.Duration {
	if checked && !t.waits {
		return 0
	}
	return max(t.next.Sub(now), 1)
}

// Silence records since when a peer sends nothing while something waits for it.
type Silence struct{ since ucs.Time } // 0: nothing waits

// Received records the time of a packet of the peer.
func (s *Silence) Received(at ucs.Time) {
	if s.since != 0 {
		s.since = max(s.since, at)
	}
}

// Lasts returns how long the silence lasts.
func (s *Silence) Lasts(now ucs.Time) time.Duration { return now.Sub(s.since) }

// Over reports whether the peer must be probed. It is called once in each check, after Received.
func (s *Silence) Over(t *CheckTimer, now ucs.Time, waits bool) bool {
	if !waits {
		s.since = 0
		return false
	}
	t.waits = true
	if s.since == 0 {
		s.since = now
	}
	return s.Lasts(now) >= maxSilence
}
