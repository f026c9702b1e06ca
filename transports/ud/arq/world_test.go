package arq

import (
	"encoding/binary"
	"flag"
	"iter"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
)

var oneSeed = flag.Int64("seed", -1, "run this seed of the simulation alone")

// seeds are those that a test runs: so many, and kept ones, which have found faults.
func seeds(usual uint64, kept ...uint64) iter.Seq[uint64] {
	switch {
	case *oneSeed >= 0:
		usual, kept = 0, []uint64{uint64(*oneSeed)}
	case os.Getenv("GOUCX_TEST_LONG") != "":
		usual *= 20
	case testing.Short() || race.Enabled:
		usual = max(usual/5, 3)
	}
	return func(yield func(uint64) bool) {
		for seed := range usual {
			if !yield(seed) {
				return
			}
		}
		for _, seed := range kept {
			if seed >= usual && !yield(seed) {
				return
			}
		}
	}
}

// world is interfaces on a simulated network.
type world struct {
	t     *testing.T
	seed  uint64
	net   *sim.Net
	conf  Config
	hosts []*host
	// got is what arrived of each flow that anybody ever opened, by initiator's name,
	// number and first sequence number.
	got map[stream]*delivered
}

type stream struct {
	name  uint64
	flow  Flow
	first Seq
}

type delivered struct {
	next uint64 // message
	end  bool
	gone bool // the receiver gave up
}

func newWorld(t *testing.T, seed uint64, l sim.Link) *world {
	w := &world{t: t, seed: seed, net: sim.New(seed), conf: Default, got: map[stream]*delivered{}}
	w.net.SetDefault(l)
	return w
}

// host is one interface and its program.
type host struct {
	w     *world
	at    netip.AddrPort
	mux   *Mux
	flows []*flow
	ins   []*Receiver
	peers []netip.AddrPort // by the mux's number
	slots map[uint32][]byte
	slot  uint32
	timer ucs.Time
	ackAt ucs.Time
	sent  int
	// A program that computes does not look at what arrives, which stands in a queue
	// of so many.
	awake  ucs.Time
	queue  [][]byte
	from   []netip.AddrPort
	over   int // packets that found the queue full
	window uint8
	dead   bool
}

// flow is one of a host's, with its program: n messages and an end.
type flow struct {
	*Sender
	num    Flow
	first  Seq
	to     *host
	name   uint64
	pushed uint64
	n      uint64
	closes bool
}

const queueLen = 512

func (w *world) host() *host {
	h := &host{w: w, at: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(len(w.hosts) + 1)}), 1), window: MaxWindow}
	h.restart()
	w.hosts = append(w.hosts, h)
	return h
}

// restart makes the host another one at the same address.
func (h *host) restart() {
	h.mux = NewMux(&h.w.conf, h.w.net.Rand().Uint64())
	h.flows, h.ins, h.peers, h.slots = nil, nil, nil, map[uint32][]byte{}
	h.queue, h.from = nil, nil
	h.w.net.Attach(h.at, h.hear)
}

// open has a flow of n messages to a host, and its end.
func (h *host) open(to *host, n uint64) *flow {
	f := h.openFor(to, n)
	f.closes = true
	h.run()
	return f
}

// openFor is open without the end.
func (h *host) openFor(to *host, n uint64) *flow {
	first := Seq(h.w.net.Rand().Uint32())
	num, s := h.mux.Open(first)
	f := &flow{Sender: s, num: num, first: first, to: to, name: to.mux.Name, n: n}
	h.flows = append(h.flows, f)
	s.Start(h.w.net.Now())
	h.run()
	return f
}

func (h *host) peer(a netip.AddrPort) uint32 {
	for i, p := range h.peers {
		if p == a {
			return uint32(i)
		}
	}
	h.peers = append(h.peers, a)
	return uint32(len(h.peers) - 1)
}

func (h *host) send(to netip.AddrPort, head Header, body []byte) {
	b := make([]byte, HeaderLen, HeaderLen+len(body))
	head.Put(b)
	h.sent++
	h.w.net.Send(h.at, to, append(b, body...))
}

func (h *host) hear(from netip.AddrPort, b []byte, now ucs.Time) {
	if h.dead {
		return
	}
	if now < h.awake || len(h.queue) > 0 {
		if len(h.queue) == queueLen {
			h.over++
			return
		}
		h.queue, h.from = append(h.queue, append([]byte(nil), b...)), append(h.from, from)
		return
	}
	h.take(from, b, now)
	h.run()
}

// compute has the program look at nothing for a while.
func (h *host) compute(d time.Duration) {
	h.awake = h.w.net.Now().Add(d)
	h.w.net.At(h.awake, func(now ucs.Time) {
		for i, b := range h.queue {
			h.take(h.from[i], b, now)
		}
		h.queue, h.from = nil, nil
		h.run()
	})
}

// take is what a transport does with a packet.
func (h *host) take(from netip.AddrPort, b []byte, now ucs.Time) {
	head, ok := Parse(b)
	if !ok {
		return
	}
	var free []uint32
	if s := h.mux.Sender(head.AckOf()); s != nil && (head.Kind() != Control || head.ID() == Ack) {
		var sel *Selective
		if head.Kind() == Control {
			v := ParseSelective(&head, b[HeaderLen:])
			sel = &v
			s.HandleDuplicates(uint32(head.Seq()))
		}
		free = s.HandleAck(head.Ack(), head.Window(), sel, now, free)
	}
	switch {
	case head.Kind() == Control && head.ID() == Connect:
		answer, made := h.mux.HandleConnect(h.peer(from), &head, h.window, now)
		if made != nil {
			h.ins = append(h.ins, made)
		}
		h.send(from, answer, nil)
	case head.Kind() == Control && head.ID() == CloseComplete:
		if r := h.mux.HandleCloseComplete(&head, false); r != nil {
			h.forget(r)
		}
	case head.Kind() == Control && head.ID() == Reset:
		for _, f := range h.flows {
			if f.To() == head.To() && f.to.at == from {
				f.HandleReset(head.Seq())
			}
		}
	case head.Kind() == Control && head.ID() != Ack && head.ID() != Probe:
		h.mux.HandleReply(&head, now)
	case head.Kind() != Control || head.ID() == Probe:
		h.numbered(from, &head, b, now)
	}
	h.give(free)
}

func (h *host) numbered(from netip.AddrPort, head *Header, b []byte, now ucs.Time) {
	r := h.mux.Receiver(head.To())
	if r == nil || h.peers[r.Peer] != from {
		h.send(from, ResetHeader(head), nil)
		return
	}
	if head.Kind() == Control {
		r.HandleProbe(now)
		return
	}
	h.slot++
	h.slots[h.slot] = append([]byte(nil), b...)
	switch r.Arrive(head.Seq(), h.slot, head.AckReq(), len(h.slots) < 3*queueLen, now) {
	case Hold:
	case Deliver:
		h.deliver(r, h.slot)
		for s, ok := r.Pop(); ok; s, ok = r.Pop() {
			h.deliver(r, s)
		}
	default:
		delete(h.slots, h.slot)
	}
}

// deliver checks a message against the naive oracle: the next number, once.
func (h *host) deliver(r *Receiver, slot uint32) {
	w := h.w
	b := h.slots[slot]
	delete(h.slots, slot)
	head, _ := Parse(b)
	k := stream{binary.LittleEndian.Uint64(b[HeaderLen:]), r.Remote, r.first}
	d := w.got[k]
	if d == nil {
		d = new(delivered)
		w.got[k] = d
	}
	if d.end || d.gone {
		require.FailNow(w.t, "after the end", "seed %d", w.seed)
	}
	if head.Kind() == End {
		d.end = true
		r.End()
		return
	}
	if head.C != d.next || uint64(head.ID()) != d.next%32 {
		require.FailNow(w.t, "order", "seed %d: message %d, not %d", w.seed, head.C, d.next)
	}
	d.next++
}

func (h *host) forget(r *Receiver) {
	h.give(r.Drop(nil))
	h.mux.RemoveReceiver(r.Local)
	for i := range h.ins {
		if h.ins[i] == r {
			h.ins = append(h.ins[:i:i], h.ins[i+1:]...)
			return
		}
	}
}

func (h *host) give(slots []uint32) {
	for _, s := range slots {
		if _, ok := h.slots[s]; !ok {
			require.FailNow(h.w.t, "slot given back twice", "seed %d: slot %d", h.w.seed, s)
		}
		delete(h.slots, s)
	}
}

func (h *host) acknowledge(r *Receiver) {
	sel, _ := r.Selective()
	head := AckHeader(r, h.window, &sel)
	h.send(h.peers[r.Peer], head, sel.Append(nil))
}

// run does all that is due and sets a timer for the rest.
func (h *host) run() {
	now := h.w.net.Now()
	if now < h.awake || h.dead {
		return
	}
	due := never
	for _, f := range h.flows {
		h.push(f)
		h.tick(f, now)
		for f.Sendable() {
			slot, a := f.Transmit(now)
			h.transmit(f, slot, a)
		}
		due = min(due, f.Deadline())
	}
	owes := false
	for _, r := range append([]*Receiver(nil), h.ins...) {
		switch {
		case r.Tick(now):
			if r.Ended() { // and only its farewell is missing
				h.forget(r)
				continue
			}
			for k, d := range h.w.got {
				if k.flow == r.Remote && k.first == r.first {
					d.gone = true
				}
			}
			h.forget(r)
			continue
		case r.AckUrgent() || r.AckPending() && h.ackAt != 0 && now >= h.ackAt:
			h.acknowledge(r)
		}
		owes = owes || r.AckPending()
		due = min(due, r.Deadline())
	}
	switch {
	case !owes:
		h.ackAt = 0
	case h.ackAt == 0 || now >= h.ackAt:
		h.ackAt = now.Add(50 * time.Microsecond)
	}
	if owes {
		due = min(due, h.ackAt)
	}
	if due != never && (h.timer <= now || due < h.timer) {
		h.timer = due
		h.w.net.At(due, func(ucs.Time) { h.run() })
	}
}

func (h *host) push(f *flow) {
	for f.pushed < f.n && f.CanPush() {
		h.slot++
		b := binary.LittleEndian.AppendUint64(nil, f.pushed)
		h.slots[h.slot] = b
		f.Push(h.slot)
		f.pushed++
	}
	if f.pushed == f.n && f.closes && f.State() <= Open {
		f.PushEnd(EndFlow)
	}
}

func (h *host) tick(f *flow, now ucs.Time) {
	switch f.Tick(now) {
	case SendConnect:
		h.send(f.to.at, h.mux.ConnectHeader(f.num, f.name), nil)
	case SendProbe:
		h.send(f.to.at, Header{A: f.ProbeWord()}, nil)
	case ResendOldest:
		slot, a := f.RetransmitOldest(now)
		h.transmit(f, slot, a)
	case Nothing, FlowFailed:
	}
	if f.State() >= Done && h.mux.Sender(f.num) == f.Sender {
		if f.State() == Done {
			h.send(f.to.at, Header{A: f.CloseCompleteWord()}, nil)
		}
		h.give(f.Reclaim(nil))
		h.mux.RemoveSender(f.num)
	}
}

func (h *host) transmit(f *flow, slot uint32, a uint64) {
	head := Header{A: a}
	if _, end := EndID(slot); !end {
		head.C = binary.LittleEndian.Uint64(h.slots[slot])
		head.A |= head.C % 32
	}
	for _, r := range h.ins { // acknowledgements ride
		if h.peers[r.Peer] == f.to.at && r.AckPending() && r.Held() == 0 {
			head.B = r.AckWord(h.window)
			break
		}
	}
	h.send(f.to.at, head, binary.LittleEndian.AppendUint64(nil, h.mux.Name))
}

// until steps until all flows are over, or the time has come.
func (w *world) until(end time.Duration) {
	w.t.Helper()
	for w.net.Now() < sim.Start.Add(end) && !w.over() && w.net.Step() {
	}
}

func (w *world) over() bool {
	for _, h := range w.hosts {
		for _, f := range h.flows {
			if f.State() < Done && !h.dead {
				return false
			}
		}
	}
	return true
}

// arrived is how many messages of f came, and whether its end did.
func (w *world) arrived(h *host, f *flow) delivered {
	if d := w.got[stream{h.mux.Name, f.num, f.first}]; d != nil {
		return *d
	}
	return delivered{}
}

// whole checks that everything arrived and nothing is left.
func (w *world) whole() {
	w.t.Helper()
	for _, h := range w.hosts {
		for _, f := range h.flows {
			require.Equal(w.t, Done, f.State(), "seed %d at %v: %v", w.seed, w.net.Now(), f.Reason())
			require.Equal(w.t, delivered{next: f.n, end: true}, w.arrived(h, f), "seed %d", w.seed)
		}
		require.Empty(w.t, h.slots, "seed %d: slots", w.seed)
	}
}
