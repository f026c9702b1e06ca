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
	enabled      bool      // QPAttr.PeerFeatures has verbs.PeerProbe
	srtt, rttvar ucs.Time  // smoothed round-trip time and its deviation; 0: not measured yet
	rttEnd       verbs.PSN // the round trip ends when all before this PSN is acknowledged
	rttStart     ucs.Time  // when the measurement began; 0: none is running
	count        uint8     // probes since the last acknowledgement
	pending      bool      // the last probe has no response yet: nothing else is sent
}

// The shortest time without an acknowledgement before a probe. A peer may not be
// scheduled for that long if many goroutines share a processor. The in-process link
// loses packets only when an inbox is full, so its floor is higher.
const (
	probeFloor       = ucs.Time(1_000_000)
	probeFloorInproc = ucs.Time(50_000_000)
)

// interval returns how long nothing must have been acknowledged before the next probe.
func (p *probe) interval(floor ucs.Time) ucs.Time {
	return max(2*p.srtt+4*p.rttvar, floor) << min(p.count, 16)
}

// startRTT begins a round-trip measurement, unless one is running. It ends when all
// packets before psn are acknowledged.
func (p *probe) startRTT(psn verbs.PSN, now ucs.Time) {
	if p.rttStart == 0 {
		p.rttEnd, p.rttStart = psn, now
	}
}

// cancelRTT cancels the round-trip measurement because of a retransmission: the
// acknowledgement could be that of either transmission. Without any earlier
// measurement, an unreliable value is better than none, so it continues.
//
// Source: Karn's algorithm.
func (p *probe) cancelRTT() {
	if p.srtt != 0 {
		p.rttStart = 0
	}
}

// acked records that all packets before una are acknowledged, and updates the
// round-trip estimate.
func (p *probe) acked(una verbs.PSN, now ucs.Time) {
	p.count, p.pending = 0, false
	if p.rttStart == 0 || una.Before(p.rttEnd) {
		return
	}
	rtt := now - p.rttStart
	p.rttStart = 0
	if p.srtt == 0 {
		p.srtt, p.rttvar = rtt, rtt/2
		return
	}
	// Source: RFC 6298, 2.3.
	p.rttvar += (max(rtt-p.srtt, p.srtt-rtt) - p.rttvar) / 4
	p.srtt += (rtt - p.srtt) / 8
}

// checkProbe sends a probe if it is time to. It returns when to call it again. The first
// probe requests missing responses that the reorder buffer shows. Later ones retransmit
// the oldest packet.
func (q *qp) checkProbe(now ucs.Time) ucs.Time {
	r := &q.req
	p := &r.probe
	if !p.enabled {
		return never
	}
	floor := probeFloor
	if q.d.kind == overInproc {
		floor = probeFloorInproc
	}
	if now-r.lastProgress >= p.interval(floor) && r.una != r.psn {
		if p.count++; p.count == 1 && len(r.reorder.packets) != 0 {
			r.rerequested = r.una
			q.requestMissing(len(r.reorder.packets))
		} else {
			p.pending = true
			q.goBack(r.una)
		}
		// Measure the round trip of the probe. Nothing else has been acknowledged for longer
		// than a round trip, so the next acknowledgement is most likely that of the probe.
		// Under heavy loss no other packet provides a measurement.
		if p.srtt != 0 {
			p.rttEnd, p.rttStart = r.una.Add(1), now
		}
	}
	return r.lastProgress + p.interval(floor)
}

// skipTo advances the send position to psn, which the peer has shown to have reached, so
// that packets before it are not retransmitted. It stops at a READ or atomic whose
// response is missing.
func (q *qp) skipTo(psn verbs.PSN) {
	r := &q.req
	for r.psn.Before(psn) {
		w := q.sq.at(r.tx)
		if w.isReadOrAtomic() && !w.done {
			return
		}
		if end := w.psn.Add(int(w.numPSNs)); !psn.Before(end) {
			r.tx, r.sent, r.psn = r.tx+1, 0, end
			continue
		}
		r.sent, r.psn = uint32(psn.Diff(w.psn)), psn
	}
}
