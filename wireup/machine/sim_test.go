package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// world is two workers, the network between them, and the pairs that they made.
type world struct {
	sched
	lossy bool
	sides [2]*side
	pairs map[string]*path // by maker and number
	last  map[string]ucs.Time
}

// path is one direction of a pair: it keeps order.
type path struct{ items [2][]item }

type item struct {
	at   ucs.Time
	data int    // > 0: a message
	mark PairID // else: as the sender names it
}

// side is one worker's end and its program.
type side struct {
	w       *world
	me      int
	socket  int // whose
	m       Machine
	out, in PairID
	alive   map[PairID]bool
	sent    int
	got     int
	wants   int // messages still to be sent
	dead    bool
	failed  bool
	ended   bool
	ticking ucs.Time
	retired int
}

func newWorld(t testing.TB, seed uint64, lossy bool) *world {
	w := &world{sched: newSched(t, seed, 11), lossy: lossy, pairs: map[string]*path{}, last: map[string]ucs.Time{}}
	ids := w.rnd.Perm(2)
	for i := range w.sides {
		c := Config{Worker: [16]byte{byte(ids[i])}, Conn: w.rnd.Uint64() | 1}
		if lossy {
			c.Timeout, c.Limit = time.Millisecond, time.Second
		}
		w.sides[i] = &side{w: w, me: i, socket: i, m: New(c), alive: map[PairID]bool{}}
	}
	return w
}

// key names a pair for both sides.
func (s *side) key(p PairID) string {
	who := s.me
	if !p.IsLocal() {
		who = 1 - who
	}
	return fmt.Sprintf("%d/%d", who, p>>1)
}

func (s *side) step(ev Event) {
	if s.dead || (s.ended || s.failed) && ev.Kind != EventReceive {
		return
	}
	if ev.Kind == EventReceive && ev.Msg.CarriesPair() && s.w.rnd.IntN(40) == 0 && ev.Msg.Kind == MsgMigrate {
		ev.Kind = EventAttachFailed
	}
	var buf [8]Action
	before := s.m.State()
	acts := s.m.Step(s.w.now, ev, buf[:0])
	walk(s.w.t, before, ev, s.m.State())
	for _, a := range acts {
		s.do(a)
	}
	if !s.failed && !s.ended && !s.dead {
		require.Equal(s.w.t, [2]PairID{s.m.TxPair(), s.m.RxPair()}, [2]PairID{s.out, s.in}, "%s", s.w.tail())
	}
	s.clock()
}

func (s *side) clock() {
	d := s.m.Deadline()
	if d == 0 || d == s.ticking {
		return
	}
	s.ticking = d
	s.w.atTime(max(d, s.w.now), func() {
		if s.ticking == d {
			s.ticking = 0
			s.step(Event{Kind: EventTick})
		}
	})
}

func (s *side) do(a Action) {
	w := s.w
	w.note("%d: act %d %v %v %+v", s.me, a.Kind, a.Msg.Kind, a.Pair, a.Msg.Pair)
	switch a.Kind {
	case ActionCreate:
		require.Nil(w.t, w.pairs[s.key(a.Pair)])
		w.pairs[s.key(a.Pair)] = new(path)
	case ActionSend:
		s.post(a.Msg)
	case ActionSwitchTx:
		if s.out != None {
			s.put(s.out, item{mark: a.Pair})
		}
		s.out = a.Pair
		if a.Pair == End {
			s.out = None
		}
		s.flush()
	case ActionSwitchRx:
		s.in = a.Pair
		w.after(0, s.pump)
	case ActionRetire:
		require.NotEqual(w.t, s.in, a.Pair, "retires what it reads\n%s", w.tail())
		require.NotEqual(w.t, s.out, a.Pair, "retires where it sends\n%s", w.tail())
		s.retired++
	case ActionClose:
		s.ended = true
	case ActionFail:
		s.failed = true
	default:
		require.Fail(w.t, "what is that?", "%v", a.Kind)
	}
}

// post sends a message: by sockets that keep order among themselves, or by a
// network that loses and repeats.
func (s *side) post(m Msg) {
	w := s.w
	if !w.lossy {
		if m.Kind == MsgAccept {
			s.socket = 1 - s.me // the one that OPEN came by
		}
		by := s.socket
		if m.Kind == MsgOpenCrossed {
			by = 1 - s.me
		}
		socket := fmt.Sprint(s.me, by)
		at := max(w.now.Add(w.delay()), w.last[socket]+1)
		w.last[socket] = at
		w.atTime(at, func() { s.deliver(m) })
		return
	}
	for w.rnd.IntN(4) != 0 { // lost with 1/4, else once or more often
		w.after(w.delay(), func() { s.deliver(m) })
		if w.rnd.IntN(3) != 0 {
			break
		}
	}
}

func (s *side) deliver(m Msg) {
	to := s.w.sides[1-s.me]
	s.w.note("%d: hears %v %v old %v", to.me, m.Kind, m.Pair.Flip(), m.Old.Flip())
	if to.m.State() == StateIdle && m.Kind != MsgOpen {
		return
	}
	to.step(Event{Kind: EventReceive, Msg: m, Busy: s.w.rnd.IntN(4) == 0})
	if m.Kind == MsgClose && !to.m.Closing() && s.w.rnd.IntN(2) == 0 {
		to.wants = 0
		to.step(Event{Kind: EventClose})
	}
}

// put writes into a pair; order is kept.
func (s *side) put(p PairID, it item) {
	w := s.w
	q := w.pairs[s.key(p)]
	require.NotNil(w.t, q, "writes to %v\n%s", p, w.tail())
	at := w.now.Add(w.delay())
	if n := len(q.items[s.me]); n > 0 {
		at = max(at, q.items[s.me][n-1].at)
	}
	it.at = at
	q.items[s.me] = append(q.items[s.me], it)
	w.atTime(at, w.sides[1-s.me].pump)
}

// pump reads what has come in the pair that is read.
func (s *side) pump() {
	for s.in != None && !s.dead && !s.ended && !s.failed {
		q := s.w.pairs[s.key(s.in)]
		items := &q.items[1-s.me]
		if len(*items) == 0 || (*items)[0].at > s.w.now {
			return
		}
		it := (*items)[0]
		*items = (*items)[1:]
		if it.data > 0 {
			require.Equal(s.w.t, s.got+1, it.data, "side %d\n%s", s.me, s.w.tail())
			s.got++
			continue
		}
		in := s.in
		s.step(Event{Kind: EventMarker, Pair: it.mark})
		require.NotEqual(s.w.t, in, s.in, "a marker moves the reader\n%s", s.w.tail())
	}
}

// flush sends what the program wants to send and may.
func (s *side) flush() {
	for s.wants > 0 && s.out != None && !s.m.Closing() && s.w.rnd.IntN(8) != 0 {
		s.wants--
		s.sent++
		s.put(s.out, item{data: s.sent})
	}
}

// program is what a side does at random.
func (s *side) program(steps int) {
	w := s.w
	if steps == 0 || s.dead || s.failed || s.ended {
		return
	}
	switch w.rnd.IntN(8) {
	case 0, 1, 2:
		if !s.m.Closing() {
			s.wants += w.rnd.IntN(5)
		}
	case 3:
		s.step(Event{Kind: EventMigrate})
	case 4, 5:
		s.step(Event{Kind: EventSuspend})
	}
	s.urge()
	w.after(w.delay(), func() { s.program(steps - 1) })
}

// urge connects or resumes if there is data.
func (s *side) urge() {
	switch {
	case s.wants == 0:
	case s.m.State() == StateIdle:
		s.step(Event{Kind: EventConnect})
	case s.out == None:
		s.step(Event{Kind: EventResume})
	}
	s.flush()
}

// settle lets a side send what is left.
func (s *side) settle() {
	if s.dead || s.failed || s.ended || s.wants == 0 || s.m.Closing() {
		return
	}
	s.urge()
	s.w.after(100*time.Microsecond, s.settle)
}
