package machine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

var update = flag.Bool("update", false, "write the golden output of testdata/*.txt")

// TestScenarios runs testdata/*.txt. Each is a conversation of two machines, A and B. Lines that
// begin with a tab are the golden output; -update writes them. The other lines are commands:
//
//	# text                 a comment
//	machines [threeway] [timeout=D]   new machines; A's worker UUID is the smaller one
//	A connect | migrate | resume | suspend | close | tick | peer lost | data received
//	A receives [KIND] [busy|twice]    the oldest message in flight to A, of that kind
//	A cannot attach [KIND] the same, and the pairs that it carries cannot be attached
//	A loses [KIND]         that message is lost
//	A receives forged KIND [local N|remote N]   a message that the peer did not send
//	A reads marker         the oldest marker in flight to A
//
// Pairs are named from the side in the line. After each command follow the actions of the machine,
// and its state where it has changed.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			got := playScenario(t, string(text))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(text), got, "go test -run Scenarios -update writes the output")
		})
	}
}

// scenario is a conversation of two machines.
type scenario struct {
	t       *testing.T
	now     ucs.Time
	players [2]player
	out     strings.Builder
}

// player is one side of a scenario, with what is in flight to it.
type player struct {
	m       Machine
	seen    string // the last summary that was written
	mail    []Msg
	markers []PairID
}

func playScenario(t *testing.T, text string) string {
	s := &scenario{t: t, now: 1}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		s.out.WriteString(line)
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "machines"):
			c := Config{ThreeWay: strings.Contains(line, "threeway")}
			if _, d, ok := strings.Cut(line, "timeout="); ok {
				var err error
				c.Timeout, err = time.ParseDuration(d)
				require.NoError(t, err)
			}
			for i := range s.players {
				c.Worker, c.Conn = [16]byte{byte(i + 1)}, uint64(i+1)
				s.players[i] = player{m: New(c), seen: "idle"}
			}
		default:
			s.command(line)
		}
	}
	return s.out.String()
}

// command runs one command line.
func (s *scenario) command(line string) {
	name, verb, _ := strings.Cut(line, " ")
	side := strings.Index("AB", name)
	require.GreaterOrEqual(s.t, side, 0, line)
	p := &s.players[side]
	words := strings.Fields(verb)
	for word, kind := range map[string]EventKind{
		"connect": EventConnect, "migrate": EventMigrate, "resume": EventResume, "suspend": EventSuspend, "close": EventClose,
	} {
		if verb == word {
			s.step(side, Event{Kind: kind})
			return
		}
	}
	switch {
	case verb == "peer lost":
		s.step(side, Event{Kind: EventPeerLost})
	case verb == "data received":
		s.step(side, Event{Kind: EventDataReceived, Pair: p.m.TxPending()})
	case verb == "tick":
		require.NotZero(s.t, p.m.Deadline(), line)
		s.now = max(s.now, p.m.Deadline())
		s.step(side, Event{Kind: EventTick})
	case verb == "reads marker":
		require.NotEmpty(s.t, p.markers, line)
		marker := p.markers[0]
		p.markers = p.markers[1:]
		s.step(side, Event{Kind: EventMarker, Pair: marker})
	case strings.HasPrefix(verb, "receives forged"):
		peer := &s.players[1-side].m
		m := Msg{Kind: kindNamed(words[2]), Worker: peer.conf.Worker, From: peer.conf.Conn, To: p.m.conf.Conn}
		if len(words) == 5 {
			var n uint32
			_, err := fmt.Sscan(words[4], &n)
			require.NoError(s.t, err)
			m.Pair = localPair(n)
			if words[3] == "local" {
				m.Pair = m.Pair.Flip()
			}
		}
		s.step(side, Event{Kind: EventReceive, Msg: m})
	case words[0] == "receives":
		ev := Event{Kind: EventReceive, Msg: s.take(side, words), Busy: strings.HasSuffix(verb, " busy")}
		s.step(side, ev)
		if strings.HasSuffix(verb, " twice") {
			s.out.WriteString("\tagain:\n")
			s.step(side, ev)
		}
	case strings.HasPrefix(verb, "cannot attach"):
		s.step(side, Event{Kind: EventAttachFailed, Msg: s.take(side, words)})
	case words[0] == "loses":
		s.take(side, words)
	default:
		require.Fail(s.t, "unknown command", line)
	}
}

// kindNamed returns the kind of that name, 0 for none.
func kindNamed(name string) MsgKind {
	for k := range numMsgKinds {
		if k.String() == name {
			return k
		}
	}
	return 0
}

// take removes the oldest message in flight to a side, of the kind in words if there is one.
func (s *scenario) take(side int, words []string) Msg {
	p := &s.players[side]
	var kind MsgKind
	for _, w := range words {
		kind = max(kind, kindNamed(w))
	}
	for i, m := range p.mail {
		if kind == 0 || m.Kind == kind {
			p.mail = append(p.mail[:i:i], p.mail[i+1:]...)
			return m
		}
	}
	require.Fail(s.t, "no such message is in flight", "%v", words)
	return Msg{}
}

// step runs one event and writes the actions and the new state.
func (s *scenario) step(side int, ev Event) {
	p, peer := &s.players[side], &s.players[1-side]
	tx, ignored, before := p.m.TxPair(), p.m.Ignored(), p.m.State()
	acts := p.m.Step(s.now, ev, nil)
	walk(s.t, before, ev, p.m.State())
	for _, a := range acts {
		switch a.Kind {
		case ActionSend:
			peer.mail = append(peer.mail, a.Msg)
			s.note("send %v%s", a.Msg.Kind, describe(a.Msg))
		case ActionSwitchTx:
			if tx != None {
				peer.markers = append(peer.markers, a.Pair)
				s.note("write marker %v into %v", a.Pair, tx)
			}
			tx = a.Pair
			if a.Pair == None || a.Pair == End {
				tx = None
				s.note("send nowhere")
			} else {
				s.note("send on %v", a.Pair)
			}
		case ActionSwitchRx:
			if a.Pair == None {
				s.note("read nothing")
			} else {
				s.note("read %v", a.Pair)
			}
		case ActionCreate:
			s.note("create %v", a.Pair)
		case ActionConnect:
			s.note("connect the queue pair of %v", a.Pair)
		case ActionRetire:
			s.note("retire %v", a.Pair)
		case ActionClose:
			s.note("close the connection")
		case ActionFail:
			s.note("fail the connection: %s", [...]string{"", "peer lost", "rejected", "protocol error", "stale"}[a.Reason])
		}
	}
	if p.m.Ignored() > ignored {
		s.note("ignored")
	}
	if now := p.m.State().String(); now != p.seen {
		p.seen = now
		s.note("= %s", now)
	}
}

func (s *scenario) note(format string, args ...any) {
	fmt.Fprintf(&s.out, "\t"+format+"\n", args...)
}

// describe returns the fields of a message that are set.
func describe(m Msg) (text string) {
	if m.Pair != None {
		text += fmt.Sprintf(", pair %v", m.Pair)
	}
	if m.Old != None {
		text += fmt.Sprintf(", old %v", m.Old)
	}
	if m.Resume {
		text += ", resume"
	}
	if m.Closing {
		text += ", closing"
	}
	return text
}
