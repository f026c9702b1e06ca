package soft

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// probe detects the loss of the last packets sent, or of their ACK, as TCP's tail loss
// probe does (RFC 8985). It acts long before the time-out and uses up no retry. When
// nothing has been acknowledged for longer than a round trip, the oldest packet alone
// is retransmitted. The peer's response shows which packets it has.
type probe struct {
	on        bool      // QPAttr.PeerFeatures has verbs.PeerProbe
	srtt, dev ucs.Time  // smoothed round-trip time and its deviation; 0: not measured yet
	mark      verbs.PSN // the round trip ends when all before this PSN is acknowledged
	markAt    ucs.Time  // when the measurement began; 0: none is running
	sent      uint8     // probes since the last acknowledgement
	alone     bool      // the last probe has no response yet: nothing else is sent
}

// The shortest time without an acknowledgement before a probe. A peer may not be
// scheduled for that long if many goroutines share a processor. The in-process link
// loses packets only when an inbox is full, so its floor is higher.
const (
	probeFloor       = ucs.Time(1_000_000)
	probeFloorInproc = ucs.Time(50_000_000)
)

// after returns how long nothing must have been acknowledged before the next probe.
func (p *probe) after(floor ucs.Time) ucs.Time {
	return max(2*p.srtt+4*p.dev, floor) << min(p.sent, 16)
}

// start begins a round-trip measurement, unless one is running. It ends when all
// packets before psn are acknowledged.
func (p *probe) start(psn verbs.PSN, now ucs.Time) {
	if p.markAt == 0 {
		p.mark, p.markAt = psn, now
	}
}

// again cancels the round-trip measurement because of a retransmission: the
// acknowledgement could be that of either transmission. Without any earlier
// measurement, an unreliable value is better than none, so it continues.
//
// Source: Karn's algorithm.
func (p *probe) again() {
	if p.srtt != 0 {
		p.markAt = 0
	}
}

// probed measures the round trip of a probe at psn. Nothing else has been acknowledged
// for longer than a round trip, so the next acknowledgement is most likely that of the
// probe. Under heavy loss no other packet provides a measurement.
func (p *probe) probed(psn verbs.PSN, now ucs.Time) {
	if p.srtt != 0 {
		p.mark, p.markAt = psn.Add(1), now
	}
}

// acked records that all packets before una are acknowledged, and updates the
// round-trip estimate.
func (p *probe) acked(una verbs.PSN, now ucs.Time) {
	p.sent, p.alone = 0, false
	if p.markAt == 0 || una.Before(p.mark) {
		return
	}
	rtt := now - p.markAt
	p.markAt = 0
	if p.srtt == 0 {
		p.srtt, p.dev = rtt, rtt/2
		return
	}
	// Source: RFC 6298, 2.3.
	p.dev += (max(rtt-p.srtt, p.srtt-rtt) - p.dev) / 4
	p.srtt += (rtt - p.srtt) / 8
}

// probeDue sends a probe if it is time to. It returns when to call it again. The first
// probe requests missing responses that the reorder buffer shows. Later ones retransmit
// the oldest packet.
func (q *qp) probeDue(now ucs.Time) ucs.Time {
	r := &q.req
	p := &r.probe
	if !p.on {
		return never
	}
	floor := probeFloor
	if q.d.kind == overInproc {
		floor = probeFloorInproc
	}
	if now-r.since >= p.after(floor) && r.una != r.psn {
		if p.sent++; p.sent == 1 && len(r.reorder.held) != 0 {
			r.late = r.una
			q.requestMissing(len(r.reorder.held))
		} else {
			p.alone = true
			q.goBack(r.una)
		}
		p.probed(r.una, now)
	}
	return r.since + p.after(floor)
}

// skip advances the send position to psn, which the peer has shown to have reached, so
// that packets before it are not retransmitted. It stops at a READ or atomic whose
// response is missing.
func (q *qp) skip(psn verbs.PSN) {
	r := &q.req
	for r.psn.Before(psn) {
		w := q.sq.at(r.tx)
		if w.reads() && !w.done {
			return
		}
		if end := w.psn.Add(int(w.npk)); !psn.Before(end) {
			r.tx, r.sent, r.psn = r.tx+1, 0, end
			continue
		}
		r.sent, r.psn = uint32(psn.Diff(w.psn)), psn
	}
}
