package arq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// Each state of a Sender and each event: the state that follows.
func TestSenderStates(t *testing.T) {
	conf := Default
	now := ucs.Time(1)
	const first = Seq(100)
	in := map[State]func() *Sender{
		Opening: func() *Sender { s := NewSender(&conf, first); s.Start(now); return s },
	}
	in[Open] = func() *Sender {
		s := in[Opening]()
		s.HandleAccept(7, 10, now)
		s.PushEnd(EndFlow)
		s.Transmit(now)
		return s
	}
	in[Done] = func() *Sender { s := in[Open](); s.HandleAck(first+1, 10, nil, now, nil); return s }
	in[Failed] = func() *Sender { s := in[Open](); s.Fail(Closed); return s }
	busy := func() *Sender { s := in[Opening](); s.HandleAccept(7, 10, now); s.Push(1); s.Transmit(now); return s }

	events := map[string]func(s *Sender){
		"accept":     func(s *Sender) { s.HandleAccept(7, 10, now) },
		"ack of end": func(s *Sender) { s.HandleAck(first+1, 10, nil, now, nil) },
		"reset":      func(s *Sender) { s.HandleReset(first) },
		"fail":       func(s *Sender) { s.Fail(Rejected) },
	}
	effects := map[State]map[string]State{
		Opening: {"accept": Open, "fail": Failed},
		Open:    {"ack of end": Done, "reset": Done, "fail": Failed},
	}
	for state := range numStates {
		for name, event := range events {
			s, want := in[state](), state
			require.Equal(t, state, s.State())
			if to, ok := effects[state][name]; ok {
				want = to
			}
			event(s)
			require.Equal(t, want, s.State(), "%v, %s", state, name)
		}
	}
	s := busy()
	s.HandleReset(first)
	require.Equal(t, Failed, s.State(), "a message was not acknowledged")
	require.Equal(t, ResetByPeer, s.Reason())
}
