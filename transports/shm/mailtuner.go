package shm

// mailTuner finds how long a side does not look at a mailbox after it has sent, and whether the mailbox is
// faster than the ring at all. It compares the cycles that an exchange takes, in rounds of mailRound measurements: of
// the present hold-off, of a longer and of a shorter one. So it follows the machine,
// whose cores may be near for a second, and then far. All times are in cycles (cpu.Cycles).
//
// It is a pure machine, without clock or connection.
type mailTuner struct {
	hold    uint64    // the present hold-off
	step    int       // next measurement in the round
	round   int       // rounds since the last comparison with the ring
	best    [3]uint64 // shortest exchange in this round: as it is, with a longer hold-off, with a shorter one
	viaRing uint64    // shortest exchange through the ring; 0: not known
	rest    int       // measurements through the ring until the mailbox is tried again
	wait    int       // rest after the next comparison that it loses
}

const (
	mailRound    = 32  // measurements in a round
	mailCompare  = 32  // rounds between two comparisons with the ring
	mailTrial    = 4   // measurements of the ring in a comparison
	mailHold     = 100 // cycles of hold-off at first
	mailHoldStep = 25
	mailHoldMax  = 1000
	mailWaitMax  = 1 << 16
	// A change must shorten exchanges by one part in mailGain.
	mailGain = 50
)

// measured handles a measurement through the mailbox: n exchanges took cycles. It returns the hold-off of
// the next ones. profits is false if the next ones must go through the ring.
func (t *mailTuner) measured(cycles, n uint64) (hold uint64, profits bool) {
	phase := min(t.step/2, len(t.best)) // the first measurement of each phase has the change in it
	if each := cycles / n; phase < len(t.best) && t.step%2 == 1 {
		t.best[phase] = each
	}
	t.step++
	switch {
	case t.step == 2*len(t.best):
		switch now, longer, shorter := t.best[0], t.best[1], t.best[2]; {
		case min(now, longer, shorter) > t.viaRing+t.viaRing/mailGain:
			t.lost()
			return 0, false
		case longer < now-now/mailGain && longer <= shorter:
			t.hold = min(t.hold+mailHoldStep, mailHoldMax)
		case shorter < now-now/mailGain:
			t.hold -= min(t.hold, mailHoldStep)
		}
	case t.step == mailRound:
		t.step, t.wait = 0, 0
		if t.round++; t.round == mailCompare {
			t.round, t.rest = 0, mailTrial
			return 0, false
		}
	}
	switch t.step / 2 {
	case 1:
		return t.hold + mailHoldStep, true
	case 2:
		return t.hold - min(t.hold, mailHoldStep), true
	}
	return t.hold, true
}

// lost handles that the mailbox is of no use at present. The next messages must go through the ring.
func (t *mailTuner) lost() {
	t.wait = min(max(2*t.wait, mailRound), mailWaitMax)
	t.rest, t.step, t.round, t.hold = t.wait, 0, 0, mailHold
}

// ring handles a measurement through the ring. It returns the hold-off with which the mailbox is to be used.
// profits is false while the next exchanges must go through the ring.
func (t *mailTuner) ring(cycles, n uint64) (hold uint64, profits bool) {
	each := cycles / n
	if t.rest >= mailTrial || t.viaRing == 0 {
		t.viaRing = each
	}
	t.viaRing = min(t.viaRing, each)
	if t.rest > 0 {
		t.rest--
	}
	return t.hold, t.rest == 0
}
