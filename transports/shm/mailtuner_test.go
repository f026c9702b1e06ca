package shm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// machineModel is how many cycles an exchange takes.
type machineModel struct {
	ring uint64
	mail func(hold uint64) uint64
}

// vee is an exchange that is shortest with a hold-off of at.
func vee(at, shortest uint64) func(uint64) uint64 {
	return func(hold uint64) uint64 { return shortest + max(hold, at) - min(hold, at) }
}

// run makes n measurements on the model, and returns in how many the mailbox was used.
func (t *mailTuner) run(m machineModel, on *bool, n int) (used int) {
	hold := t.hold
	for range n {
		if !*on {
			hold, *on = t.ring(m.ring*100, 100)
			continue
		}
		used++
		hold, *on = t.measured(m.mail(hold)*100, 100)
	}
	return used
}

func TestMailTuner(t *testing.T) {
	far := machineModel{850, vee(150, 400)}
	near := machineModel{320, vee(0, 400)}
	tuner, on := mailTuner{hold: mailHold}, false
	const many = 100 * mailRound

	require.Greater(t, tuner.run(far, &on, many), many-50)
	require.InDelta(t, 150, tuner.hold, 2*mailHoldStep)

	tuner.run(near, &on, mailCompare*mailRound) // until the ring is measured anew
	used := tuner.run(near, &on, many)
	require.Less(t, used, many/5, "the ring is faster")
	require.Positive(t, used)

	tuner.run(far, &on, many) // it takes a while until the mailbox is tried again
	require.Greater(t, tuner.run(far, &on, many), many*9/10)

	far.mail = vee(600, 420)
	tuner.run(far, &on, many)
	require.InDelta(t, 600, tuner.hold, 2*mailHoldStep, "it follows the machine")
	far.mail = vee(0, 420)
	tuner.run(far, &on, many)
	require.LessOrEqual(t, tuner.hold, uint64(2*mailHoldStep))
	far.mail = vee(5000, 420)
	far.ring = 10000
	tuner.run(far, &on, 2*many)
	require.LessOrEqual(t, tuner.hold, uint64(mailHoldMax))
}

// TestMailTunerRests: a mailbox that is never faster is tried ever more rarely.
func TestMailTunerRests(t *testing.T) {
	tuner, on := mailTuner{hold: mailHold}, false
	near := machineModel{320, vee(0, 400)}
	first := tuner.run(near, &on, 1<<12)
	tuner.run(near, &on, 1<<16)
	later := tuner.run(near, &on, 1<<12)
	require.Positive(t, first)
	require.Less(t, later, first/2)
}
