//go:build linux

package test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/transports/rc"
	"github.com/goucx/goucx/transports/ud"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

const (
	// lossEnv is the chance that a device of a member loses a packet.
	lossEnv = "GOUCX_TEST_LOSS"
	// wideEnv has few members put and get long pieces.
	wideEnv = "GOUCX_TEST_WIDE"

	slotWord   = 8  // where in a slot the word of all other atomics is
	slotText   = 64 // where in a slot what is put begins; before it a word
	memberAM   = 7
	idlePasses = 200 // before a member sleeps
)

// member is a process that exchanges data with all members that it is told of,
// with each in rounds of its own: a tag message each way, an active message, a put
// that a get reads back, two atomics. Everything is verified. When it has nothing to
// do it sleeps until the event descriptor wakes it.
//
// It says its address and the key of its memory. It hears:
//
//	with ID ADDRESS KEY   exchange with that one, too
//	count                 say the least and the most of rounds done
//	rest                  begin no more rounds than the others have begun
//	pairs                 say for each the number, the rounds begun and done, the lanes
//	lost                  say how many packets its devices lost
//	end                   close and end
//
// It says "failed ID" for each call of OnFailure.
type member struct {
	*parent
	*node
	id    uint32
	mem   *ucp.MemHandle
	mates map[uint32]*mate
	heard map[uint32]uint64 // active messages, by sender
	lines chan string
	rests bool
	idle  int
}

// mate is another member as this one sees it.
type mate struct {
	*member
	id           uint32
	e            ucp.Endpoint
	key          *ucp.RemoteKey
	word, second ucp.Atomic[uint64]
	over         bool // an operation failed, so that OnFailure is due
	gone         bool // OnFailure was called
	begun        uint64
	round        uint64 // done
	first        uint64 // the word's value before this side's
	do           func(*mate) bool

	text, in, back []byte
	recv           ucp.RecvRequest
	sent           [2]ucp.Request
	access         ucp.Request
	fetch          ucp.Fetch[uint64]
	other          ucp.Fetch[uint64] // of the second word, by another operation each round
	value          uint64            // of that word after it
}

// memberSlots is how far numbers of members that are alive at once may differ, slotLen
// the length of a member's slot in the memory of each other.
var memberSlots, slotLen = slots()

func slots() (n, size int) {
	if os.Getenv(wideEnv) != "" {
		return 2, 256 << 10
	}
	return 1024, 512
}

func roleMember(p *parent) {
	m := &member{
		parent: p, mates: make(map[uint32]*mate), heard: make(map[uint32]uint64),
		lines: make(chan string, 1024),
	}
	check(scanLine(p.hear(), &m.id))
	x := must(goucx.Open(ucp.Config{CloseTimeout: patience, Providers: lossy()}))
	m.node = &node{x: x, w: must(x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle}))}
	m.mem = must(x.Allocate(memberSlots*slotLen, ucp.MemConfig{}))
	check(m.w.HandleAM(memberAM, m.hearAM))
	go func() {
		for {
			m.lines <- p.hear()
			m.w.Signal()
		}
	}()
	m.say(m.address(), hex.EncodeToString(m.mem.Key()))
	for {
		m.rest(m.w.Progress() + m.step())
		select {
		case s := <-m.lines:
			m.obey(s)
		default:
		}
	}
}

// lost counts the packets that the devices of lossy lost.
var lost atomic.Int64

// lossy gives all transports, their devices losing packets where lossEnv says so;
// nil: as always.
func lossy() []uct.Component {
	text := os.Getenv(lossEnv)
	if text == "" {
		return nil
	}
	chance, r := must(strconv.ParseFloat(text, 64)), rand.New(rand.NewPCG(uint64(os.Getpid()), 0))
	var mu sync.Mutex // of r: there are several devices
	faults := soft.Faults{Hook: func(*soft.PacketInfo) (v soft.Verdict) {
		mu.Lock()
		defer mu.Unlock()
		if v.Drop = r.Float64() < chance; v.Drop {
			lost.Add(1)
		}
		return v
	}}
	devices := func(s *config.Set, log *zap.Logger) []verbs.Provider {
		return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkUDP, Faults: &faults, Log: log})}
	}
	return append(transports.All()[:2:2], rc.Component(devices), ud.Component(devices))
}

// rest sleeps where nothing was done for a while.
func (m *member) rest(did int) {
	if did > 0 {
		m.idle = 0
	}
	if m.idle++; m.idle < idlePasses || m.w.Arm() != nil {
		return
	}
	fds := []unix.PollFd{{Fd: int32(must(m.w.EventFD())), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
		check(err)
	}
	m.idle = 0
}

func (m *member) obey(line string) {
	command, rest, _ := strings.Cut(line, " ")
	switch command {
	case "with":
		m.meet(rest)
	case "count":
		least, most := uint64(math.MaxUint64), uint64(0)
		for _, t := range m.mates {
			if !t.gone {
				least, most = min(least, t.round), max(most, t.round)
			}
		}
		m.say(least, most)
	case "rest":
		m.rests = true
	case "pairs":
		var all []string
		for id, t := range m.mates {
			if t.gone {
				continue
			}
			var lanes strings.Builder
			for _, l := range t.e.Info().Lanes {
				lanes.WriteString("+" + l.Transport + "/" + l.Device)
			}
			all = append(all, fmt.Sprint(id, " ", t.begun, " ", t.round, " ", lanes.String()))
		}
		m.say(strings.Join(all, ","))
	case "lost":
		m.say(lost.Load())
	case "end":
		check(m.x.Close())
		os.Exit(0)
	default:
		check(fmt.Errorf("heard %q", line))
	}
}

// meet begins the exchange with another member, which may be dead.
func (m *member) meet(line string) {
	t := &mate{member: m, in: make([]byte, longest), back: make([]byte, slotLen)}
	var address, key string
	check(scanLine(line, &t.id, &address, &key))
	if m.mates[t.id] != nil {
		check(fmt.Errorf("member %d was met before", t.id))
	}
	m.mates[t.id] = t
	t.e = must(m.w.NewEndpoint(must(hex.DecodeString(address)), ucp.EndpointConfig{OnFailure: t.failed}))
	t.do = (*mate).begin
	var err error
	if t.key, err = m.unpack(t.e, key); err == nil {
		t.word, err = ucp.AtomicAt[uint64](t.key, t.slot())
	}
	if err == nil {
		t.second, err = ucp.AtomicAt[uint64](t.key, t.slot()+slotWord)
	}
	t.over = t.lost(err)
}

func (t *mate) failed(_ ucp.Endpoint, err error) {
	t.gone = true
	t.say("failed", t.id, strconv.Quote(err.Error()))
}

// lost reports whether err says that the other is dead. Any other ends the test.
func (t *mate) lost(err error) bool {
	if err != nil && !errors.Is(err, ucp.ErrPeerFailed) && !errors.Is(err, ucp.ErrUnreachable) {
		check(fmt.Errorf("with member %d, round %d: %w", t.id, t.round, err))
	}
	return err != nil
}

// slot is where in the other's memory this member writes.
func (t *mate) slot() uint64 { return uint64(int(t.member.id) % memberSlots * slotLen) }

func tagOf(id uint32) ucp.Tag { return 1<<32 | ucp.Tag(id) }

// step takes all rounds as far as they go and gives the number of steps.
func (m *member) step() (steps int) {
	for _, t := range m.mates {
		for !t.over && !t.gone && t.do(t) {
			steps++
		}
	}
	return steps
}

// begin begins a round.
func (t *mate) begin() bool {
	if t.rests && t.heard[t.id] <= t.round {
		return false
	}
	t.begun++
	me, n := t.member.id, t.round
	t.recv = t.w.TagRecv(t.in, tagOf(t.id), allBits).Tie(t.e)
	t.text = make([]byte, sizeOf(me, n))
	fill(t.text, me, n)
	small := make([]byte, messageHead+n%40)
	fill(small, me, n)
	post := t.e.TagSend
	if n%4 == 3 {
		post = t.e.TagSendSync
	}
	t.sent = [2]ucp.Request{post(t.text, tagOf(me)), t.e.AMSend(memberAM, small[:messageHead], small[messageHead:])}
	t.back = t.back[:messageHead+n*7919%uint64(slotLen-2*slotText)]
	put := make([]byte, len(t.back))
	fill(put, me, n)
	t.access = t.key.Put(put, t.slot()+slotText)
	t.do = (*mate).afterPut
	return true
}

func (t *mate) afterPut() bool {
	if !t.ended(t.access) {
		return false
	}
	t.access = t.e.Flush()
	t.do = (*mate).afterFlush
	return true
}

func (t *mate) afterFlush() bool {
	if !t.ended(t.access) {
		return false
	}
	t.access, t.fetch, t.other = t.key.Get(t.back, t.slot()+slotText), t.word.FetchAdd(1), t.operate()
	t.do = (*mate).afterGet
	return true
}

// operate changes the second word: by a swap in the first round, since a member that
// had the slot before may have left something.
func (t *mate) operate() ucp.Fetch[uint64] {
	x := t.operand()
	switch t.round % 5 {
	case 0:
		return t.second.Swap(x)
	case 1:
		return t.second.CompareAndSwap(t.value, x)
	case 2:
		return t.second.FetchXor(x)
	case 3:
		return t.second.FetchOr(x)
	default:
		return t.second.FetchAnd(x)
	}
}

func (t *mate) operand() uint64 { return (t.round + 1) * 0x9e3779b97f4a7c15 }

// after is the second word's value after operate.
func (t *mate) after() uint64 {
	switch x := t.operand(); t.round % 5 {
	case 2:
		return t.value ^ x
	case 3:
		return t.value | x
	case 4:
		return t.value & x
	default:
		return x
	}
}

func (t *mate) afterGet() bool {
	if !t.fetch.Done() || !t.other.Done() || !t.ended(t.access) {
		return false
	}
	v, err := t.fetch.Wait(context.Background())
	if t.over = t.lost(err); t.over {
		return false
	}
	second, err := t.other.Wait(context.Background())
	if t.over = t.lost(err); t.over {
		return false
	}
	if t.round > 0 {
		t.expect("second word", second, t.value)
	}
	t.value = t.after()
	if t.round == 0 {
		t.first = v
	}
	t.expect("fetched value", v, t.first+t.round)
	want := make([]byte, len(t.back))
	fill(want, t.member.id, t.round)
	if !bytes.Equal(want, t.back) {
		check(fmt.Errorf("round %d: what was put to member %d did not come back", t.round, t.id))
	}
	t.do = (*mate).finish
	return true
}

// finish ends a round when all has come.
func (t *mate) finish() bool {
	if !t.recv.Done() || t.heard[t.id] <= t.round || !t.ended(t.sent[0]) || !t.ended(t.sent[1]) {
		return false
	}
	got, err := t.recv.Wait(context.Background())
	if t.over = t.lost(err); t.over {
		return false
	}
	sender, n, err := read(t.in[:got.Len])
	check(err)
	t.expect("sender", uint64(sender), uint64(t.id))
	t.expect("message", n, t.round)
	t.round++
	t.do = (*mate).begin
	return true
}

func (t *mate) expect(what string, got, want uint64) {
	if got != want {
		check(fmt.Errorf("with member %d, round %d: %s %d, not %d", t.id, t.round, what, got, want))
	}
}

// ended reports whether r ended well.
func (t *mate) ended(r ucp.Request) bool {
	if !r.Done() || t.over {
		return false
	}
	t.over = t.lost(r.Err())
	return !t.over
}

func (m *member) hearAM(a *ucp.AM) {
	sender, n, err := read(append(bytes.Clone(a.Header), a.Data...))
	check(err)
	if n != m.heard[sender] {
		check(fmt.Errorf("active message of member %d: %w", sender, &orderError{n, m.heard[sender]}))
	}
	m.heard[sender]++
}
