package machine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// hostile drives one machine as a transport does, for a peer that sends any message and writes any
// marker.
type hostile struct {
	t       testing.TB
	seed    uint64
	m       Machine
	mapped  map[PairID]bool
	was     map[PairID]bool // read before
	whole   map[PairID]bool // with ThreeWay: both queue pairs are connected
	out, in PairID
	over    bool
}

// step executes the actions. It checks that the machine never sends on or reads a retired pair, nor
// one that was never attached.
func (h *hostile) step(ev Event) {
	brought := None
	if h.m.conf.ThreeWay && ev.Kind == EventReceive && h.m.AcceptsPair(ev.Msg) {
		brought = ev.Msg.Pair.Flip()
		require.False(h.t, h.mapped[brought], "seed %d: wants %v again", h.seed, brought)
		h.whole[brought] = true
	}
	if !h.m.conf.ThreeWay && ev.Kind == EventReceive && ev.Msg.CarriesPair() {
		brought = ev.Msg.Pair.Flip()
		if ev.Msg.Kind == MsgAccept {
			brought = ev.Msg.Old.Flip()
		}
		if h.mapped[brought] {
			if ev.Msg.Kind != MsgMigrate {
				return // the transport refuses it
			}
			ev.Kind, brought = EventAttachFailed, None
		}
	}
	if brought != None {
		h.mapped[brought] = true
	}
	before := h.m.State()
	acts := h.m.Step(ucs.Time(0), ev, nil)
	walk(h.t, before, ev, h.m.State())
	for _, a := range acts {
		h.do(a)
	}
	if brought == None || h.over {
		return
	}
	if h.m.Uses(brought) {
		require.True(h.t, brought.isRemote(), "seed %d: takes %v of the peer", h.seed, brought)
	} else {
		h.do(Action{Kind: ActionRetire, Pair: brought})
	}
}

func (h *hostile) do(a Action) {
	switch a.Kind {
	case ActionCreate:
		require.False(h.t, h.mapped[a.Pair], "seed %d: makes %v twice", h.seed, a.Pair)
		h.mapped[a.Pair] = true
	case ActionSwitchTx:
		h.out = a.Pair
		if a.Pair == End {
			h.out = None
		}
		require.True(h.t, h.out == None || h.mapped[h.out], "seed %d: sends in %v", h.seed, h.out)
		require.True(h.t, h.out == None || h.whole[h.out] || !h.m.conf.ThreeWay, "seed %d: sends in half of %v", h.seed, h.out)
	case ActionSend:
		if h.m.conf.ThreeWay && a.Msg.CarriesQPInfo() {
			require.True(h.t, h.mapped[a.Msg.Pair], "seed %d: says %v of %v", h.seed, a.Msg.Kind, a.Msg.Pair)
		}
	case ActionConnect:
		require.True(h.t, h.mapped[a.Pair] && !h.whole[a.Pair], "seed %d: joins %v", h.seed, a.Pair)
		h.whole[a.Pair] = true
	case ActionSwitchRx:
		require.True(h.t, a.Pair == None || h.mapped[a.Pair], "seed %d: reads %v", h.seed, a.Pair)
		require.False(h.t, h.was[a.Pair], "seed %d: reads %v again", h.seed, a.Pair)
		h.in = a.Pair
		h.was[a.Pair] = a.Pair != None
	case ActionRetire:
		require.NotEqual(h.t, h.in, a.Pair, "seed %d: retires what it reads", h.seed)
		require.NotEqual(h.t, h.out, a.Pair, "seed %d: retires where it sends", h.seed)
		delete(h.mapped, a.Pair)
	case ActionClose, ActionFail:
		h.over = true
	default:
	}
}

// pairOf names a pair as the peer would, or as it should not.
func (h *hostile) pairOf(rnd *rand.Rand) PairID {
	known := [...]PairID{h.in, h.out, h.m.agreed, h.m.proposed, h.m.lastRemote, h.m.lastRemote + 2, h.m.suspendSent, h.m.txPending}
	switch rnd.IntN(10) {
	case 0:
		return End
	case 1:
		return None
	case 2:
		return PairID(rnd.IntN(12))
	case 3:
		return PairID(rnd.Uint32())
	}
	return known[rnd.IntN(len(known))].Flip()
}

func (h *hostile) event(rnd *rand.Rand) Event {
	switch k := EventKind(rnd.IntN(14)); k {
	case EventConnect, EventMigrate, EventResume, EventSuspend:
		return Event{Kind: k}
	case EventClose:
		if rnd.IntN(4) == 0 {
			return Event{Kind: k}
		}
	case EventMarker:
		if h.in != None {
			return Event{Kind: k, Pair: h.pairOf(rnd)}
		}
	case EventDataReceived:
		return Event{Kind: k, Pair: h.m.TxPending()}
	default:
	}
	m := Msg{
		Kind: MsgKind(1 + rnd.IntN(int(numMsgKinds))), Worker: [16]byte{byte(rnd.IntN(3))}, From: 7, To: h.m.Conn(),
		Pair: h.pairOf(rnd), Resume: rnd.IntN(2) == 0, Closing: rnd.IntN(4) == 0,
	}
	if (m.Kind == MsgReject || m.Kind == MsgReset || m.Kind == numMsgKinds) && rnd.IntN(20) != 0 {
		m.Kind = MsgMigrate
	}
	if rnd.IntN(2) == 0 {
		m.Old = h.pairOf(rnd)
	}
	return Event{Kind: EventReceive, Msg: m, Busy: rnd.IntN(2) == 0}
}

// TestResumeNamesNoPairThatIsRead: a marker may lead into a pair before its MIGRATE_ACK arrives, but
// not one of a peer that was suspended: the pair would be read twice.
func TestResumeNamesNoPairThatIsRead(t *testing.T) {
	remote1, migrate := localPair(1), localPair(1).Flip() // as the peer names them
	receive := func(k MsgKind, p PairID, resume bool) Event {
		return Event{Kind: EventReceive, Msg: Msg{Kind: k, Worker: [16]byte{2}, From: 7, To: 5, Pair: p, Resume: resume}}
	}
	for _, c := range []struct {
		name string
		then []Event
		want State
	}{
		{"awake", []Event{receive(MsgMigrateAck, migrate, false)}, StateOpen},
		{"asleep", []Event{receive(MsgMigrateAck, migrate, true), {Kind: EventMarker}}, StateFailed},
		{"asleep, at its end", []Event{{Kind: EventMarker, Pair: End}, receive(MsgMigrateAck, migrate, true)}, StateFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &hostile{t: t, mapped: map[PairID]bool{}, was: map[PairID]bool{}}
			h.m = New(Config{Worker: [16]byte{1}, Conn: 5})
			for _, ev := range append([]Event{
				receive(MsgOpen, remote1, false), {Kind: EventMigrate}, {Kind: EventMarker, Pair: migrate},
			}, c.then...) {
				h.step(ev)
			}
			require.True(t, h.was[localPair(1)], "the marker leads into the migrate")
			require.Equal(t, c.want, h.m.State())
		})
	}
}

// harass drives one machine with what a hostile peer sends, and calls seen after each step.
func harass(t *testing.T, seed uint64, seen func(State)) {
	rnd := rand.New(rand.NewPCG(seed, 12))
	h := &hostile{t: t, seed: seed, mapped: map[PairID]bool{}, was: map[PairID]bool{}, whole: map[PairID]bool{}}
	c := Config{Worker: [16]byte{1}, Conn: 5, ThreeWay: seed&1 != 0}
	if seed&2 != 0 {
		c.Timeout = time.Millisecond
	}
	h.m = New(c)
	for n := 0; n < 60 && !h.over; n++ {
		h.step(h.event(rnd))
		seen(h.m.State())
	}
}

// TestHostilePeer: whatever a peer sends, no side sends on or reads a retired pair, and no reader
// returns to a pair.
func TestHostilePeer(t *testing.T) {
	states := map[State]int{}
	for seed := range uint64(20 * seeds()) {
		harass(t, seed, func(s State) { states[s]++ })
	}
	for _, s := range []State{StateOpening, StateOpen, StateClosed, StateFailed} {
		require.Positive(t, states[s], "never %v", s)
	}
}
