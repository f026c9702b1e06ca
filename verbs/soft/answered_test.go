package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

// TestAnswered: messages that are answered by messages are acknowledged a few times
// only, those that nobody answers after four. Time stands still.
func TestAnswered(t *testing.T) {
	for _, c := range []Config{{Link: LinkInproc, Engine: EngineInline}, {Link: LinkUDP, Addr: localhost, Engine: EngineInline}} {
		t.Run(c.Link, func(t *testing.T) {
			s := newScript(t, New(c))
			acks := func(e *end) uint64 { return value(t, e.device(), "device.acks") }
			message := func(from, to *end) {
				to.recv(1, 0, 64)
				from.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendInline, InlineLen: 8})
				s.until(to, 1)
			}
			for range 4 * ackPacketsImplied {
				message(s.a, s.b)
				message(s.b, s.a)
			}
			for _, e := range []*end{s.a, s.b} {
				require.GreaterOrEqual(t, acks(e), uint64(3))
				require.LessOrEqual(t, acks(e), uint64(8))
			}
			message(s.b, s.a) // what went before is another's turn
			before := acks(s.b)
			for range 4 * ackPackets {
				message(s.a, s.b)
			}
			require.GreaterOrEqual(t, acks(s.b)-before, uint64(3))
		})
	}
}
