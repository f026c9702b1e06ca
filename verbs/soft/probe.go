package soft

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// probe finds out that the last packets of what was sent, or the acknowledgement
// of them, were lost: long before the time-out, and without using up a retry. When
// nothing is acknowledged for longer than a round trip takes, the oldest packet
// goes again, alone; the answer tells what the peer has.
type probe struct {
	on        bool      // QPAttr.PeerFeatures has verbs.PeerProbe
	srtt, dev ucs.Time  // the round trip, smoothed, and its deviation; 0: never measured
	mark      verbs.PSN // the packet whose acknowledgement is waited for
	markAt    ucs.Time  // since when; 0: for none
	sent      uint8     // probes since anything was acknowledged
	alone     bool      // the last has no answer yet: nothing else is sent
}

// A probe goes no earlier than this after the last news: where many share a
// processor, a peer may not run for so long. In the program only an inbox that
// was full loses packets.
const (
	probeFloor       = ucs.Time(1_000_000)
	probeFloorInproc = ucs.Time(50_000_000)
)

// after is how long there must have been no news before the next probe.
func (p *probe) after(floor ucs.Time) ucs.Time {
	return max(2*p.srtt+4*p.dev, floor) << min(p.sent, 16)
}

// start times the acknowledgement of the packet before psn.
func (p *probe) start(psn verbs.PSN, now ucs.Time) {
	if p.markAt == 0 {
		p.mark, p.markAt = psn, now
	}
}

// again notes that something is sent a second time. Its acknowledgement says little
// of the round trip: still more than nothing, where nothing is known.
//
// Source: Karn's rule.
func (p *probe) again() {
	if p.srtt != 0 {
		p.markAt = 0
	}
}

// probed times the answer to a probe at psn. Nothing else was answered for longer than
// a round trip, so the answer is most likely that of the probe. Under heavy loss no
// other packet shows how long a round trip takes.
func (p *probe) probed(psn verbs.PSN, now ucs.Time) {
	if p.srtt != 0 {
		p.mark, p.markAt = psn.Add(1), now
	}
}

// acked takes the news that all before una has come.
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

// probeDue sends the oldest packet again when it is time to, and gives when to
// look next.
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

// skip has the requester go on at psn, which the peer shows to have reached: what
// lies before and was about to go out again need not, but for what a read is to
// bring.
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
