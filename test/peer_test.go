//go:build linux

package test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/goucx/goucx/ucp"
)

// Tags of the talks between the test and a peer.
const (
	tagPing ucp.Tag = iota + 1
	tagPong
	tagStream
	tagBig
	tagNever  // nobody sends it
	tagWaiter // nobody receives it
)

const (
	big    = 1 << 20
	pushes = 300 // numbered messages that are more than a ring holds
)

// peer is a second process that the test stops or kills while it does something.
type peer struct {
	*parent
	*node
	e   ucp.Endpoint // to the test's worker
	ctx context.Context
}

// rolePeer meets the test's worker and behaves as it is told.
func rolePeer(p *parent) {
	v := &peer{parent: p, node: must(newNode(ucp.ThreadMulti, patience)), ctx: context.Background()}
	do := behaviours[p.hear()]
	p.say(v.address())
	v.e = must(v.connect(p.hear()))
	if s := p.hear(); s != "go" {
		check(fmt.Errorf("heard %q", s))
	}
	do(v)
}

// behaviours end only where the test ends the process, or tells it to.
var behaviours = map[string]func(*peer){
	"serve":     (*peer).serve,
	"silent":    (*peer).silent,
	"echo":      (*peer).echo,
	"ping":      (*peer).ping,
	"stream":    (*peer).stream,
	"greet":     (*peer).greet,
	"collect":   (*peer).collect,
	"half send": (*peer).halfSend,
	"half recv": (*peer).halfRecv,
	"flushing":  (*peer).flushing,
	"allocated": func(v *peer) { v.lend(must(v.x.Allocate(4096, ucp.MemConfig{}))) },
	"own":       func(v *peer) { v.lend(must(v.x.Register(make([]byte, 4096), ucp.MemConfig{}))) },
	"access":    (*peer).access,
	"compute":   (*peer).compute,
	"close":     (*peer).closeWorker,
	"begin":     func(v *peer) { v.talk(true) },
	"follow":    func(v *peer) { v.talk(false) },
	"reach":     (*peer).reach,
	"guest":     (*peer).guest,

	"leave":           func(v *peer) { v.leave(16, longest, 48, big, 3000) },
	"leave at a word": (*peer).leaveAtWord,

	"leave, and nobody looked": func(v *peer) { v.leave(16, 48, 1000) },
}

func (v *peer) serve() {
	v.say("serving")
	check(v.w.Run(v.ctx))
}

// reach says what happens to the first message.
func (v *peer) reach() {
	v.say(v.e.TagSendUint64(1, tagPing).Err())
	v.hear()
}

// guest answers pings, lends memory, uses the test's, and leaves.
func (v *peer) guest() {
	buf := make([]byte, big)
	for range 100 {
		m := must(v.w.TagRecv(buf, tagPing, allBits).Wait(v.ctx))
		check(v.e.TagSend(buf[:m.Len], tagPong).Wait(v.ctx))
	}
	v.say(hex.EncodeToString(must(v.x.Allocate(4096, ucp.MemConfig{})).Key()))
	v.say(hex.EncodeToString(must(v.x.Register(make([]byte, 4096), ucp.MemConfig{})).Key()))
	for range 2 {
		k, err := v.unpack(v.e, v.hear())
		if err == nil {
			err = k.PutUint64(7, 0).Wait(v.ctx)
		}
		v.say(err)
	}
	v.hear()
	check(v.x.Close())
}

// leaveAtWord progresses until it reads from its standard input how to end.
func (v *peer) leaveAtWord() {
	v.say("here")
	for {
		v.nap(v.w.Progress())
		how, ok := v.heard()
		if !ok {
			continue
		}
		switch how {
		case "close the worker":
			check(v.w.Close())
			v.say("closed")
			v.hear()
		case "close the context":
			check(v.x.Close())
		default: // exit without Close
		}
		return
	}
}

// silent never progresses.
func (v *peer) silent() {
	v.say("silent")
	v.hear()
}

// echo answers pings. A line is the address of who is to be answered from then on.
func (v *peer) echo() {
	buf := make([]byte, big)
	ping := v.w.TagRecv(buf, tagPing, allBits)
	v.say("echoing")
	for {
		v.nap(v.w.Progress())
		if a, ok := v.heard(); ok {
			v.e.Abort(nil)
			v.e = must(v.connect(a))
			v.say("answering")
		}
		if !ping.Done() {
			continue
		}
		// A ping may end half-way, with its sender; an answer fails where the test
		// closed its side: the next one is told.
		if m, err := ping.Wait(v.ctx); err == nil {
			_ = v.e.TagSend(buf[:m.Len], tagPong).Wait(v.ctx)
		}
		ping = v.w.TagRecv(buf, tagPing, allBits)
	}
}

// ping is the side of a ping-pong that begins.
func (v *peer) ping() {
	buf := make([]byte, 8)
	for n := uint64(0); ; n++ {
		check(v.e.TagSendUint64(n, tagPing).Wait(v.ctx))
		must(v.w.TagRecv(buf, tagPong, allBits).Wait(v.ctx))
	}
}

// stream sends numbered messages for ever.
func (v *peer) stream() {
	buf := make([]byte, longest)
	for n := uint64(0); ; n++ {
		p := buf[:sizes[n%9]]
		fill(p, 1, n)
		check(v.e.TagSend(p, tagStream).Wait(v.ctx))
	}
}

// greet sends three messages and does nothing more: the test never progressed.
func (v *peer) greet() {
	for n := range uint64(3) {
		check(v.e.TagSendUint64(n, tagStream).Err())
	}
	v.say("greeted")
	v.hear()
}

// collect receives numbered messages, each sender's in order, and lends memory.
// A line is how many it is to have received when it says so.
func (v *peer) collect() {
	m := must(v.x.Allocate(4096, ucp.MemConfig{}))
	v.say(hex.EncodeToString(m.Key()))
	buf := make([]byte, longest)
	next := make(map[uint32]uint64)
	got, want := 0, -1
	recv := v.w.TagRecv(buf, tagStream, allBits)
	for {
		v.nap(v.w.Progress())
		if s, ok := v.heard(); ok {
			check(scanLine(s, &want))
		}
		if recv.Done() {
			m := must(recv.Wait(v.ctx))
			sender, n, err := read(buf[:m.Len])
			check(err)
			if n != next[sender] {
				check(&orderError{n, next[sender]})
			}
			next[sender]++
			got++
			recv = v.w.TagRecv(buf, tagStream, allBits)
		}
		if got == want {
			v.say("collected", got)
			want = -1
		}
	}
}

// talk exchanges messages with another talker as fast as it can. Lines: an
// address to send numbered messages to, "push" to send some without waiting for
// them, "pushed" to wait for them, "count" for the round trips so far.
func (v *peer) talk(begin bool) {
	out, in := make([]byte, longest), make([]byte, longest)
	collector := must(v.connect(v.hear()))
	var id uint32
	check(scanLine(v.hear(), &id))
	pushed, sent := uint64(0), []ucp.Request(nil)
	send := func(n uint64) {
		p := out[:sizeOf(id, n)]
		fill(p, id, n)
		check(v.e.TagSend(p, tagPong).Wait(v.ctx))
	}
	ahead := uint64(0) // of what comes is what this side sends
	if begin {
		send(0)
		ahead = 1
	}
	pong := v.w.TagRecv(in, tagPong, allBits)
	for count := uint64(0); ; {
		if pong.Done() {
			m := must(pong.Wait(v.ctx))
			_, n, err := read(in[:m.Len])
			check(err)
			if n != count {
				check(&orderError{n, count})
			}
			send(count + ahead)
			pong = v.w.TagRecv(in, tagPong, allBits)
			count++
		}
		v.w.Progress()
		s, ok := v.heard()
		if !ok {
			continue
		}
		switch s {
		case "count":
			v.say(count)
		case "push":
			for range pushes {
				p := make([]byte, sizeOf(id, pushed))
				fill(p, id, pushed)
				sent = append(sent, collector.TagSend(p, tagStream))
				pushed++
			}
			v.say(len(unended(sent)))
		case "pushed":
			check(ucp.WaitAll(v.ctx, sent, nil))
			check(collector.Flush().Wait(v.ctx))
			sent = nil
			v.say("all")
		}
	}
}

// halfSend sends a message whose first fragments fill the ring, and no more.
func (v *peer) halfSend() {
	v.e.TagSendWith(make([]byte, big), tagBig, ucp.Opts{Flags: ucp.ForceEager}) // in fragments
	v.say("sending")
	check(v.w.Run(v.ctx))
}

// halfRecv takes in some hundred fragments of a message, and no more.
func (v *peer) halfRecv() {
	v.w.TagRecv(make([]byte, big), tagBig, allBits)
	v.say("ready")
	for n := 0; n < 100; {
		n += v.w.Progress()
	}
	v.say("half")
	v.hear()
}

// flushing waits for a flush that the test, which does not progress, holds up.
func (v *peer) flushing() {
	buf := make([]byte, 1000)
	for n := range uint64(200) {
		fill(buf, 1, n)
		v.e.TagSend(append([]byte(nil), buf...), tagStream)
	}
	f := v.e.Flush()
	for range 10_000 {
		v.w.Progress()
	}
	v.say(f.Done())
	check(f.Wait(v.ctx))
}

// lend offers memory.
func (v *peer) lend(m *ucp.MemHandle) {
	v.say(hex.EncodeToString(m.Key()))
	check(v.w.Run(v.ctx))
}

// compute lends memory and computes until a line tells how many messages there are,
// which are received only then.
func (v *peer) compute() {
	for _, m := range []*ucp.MemHandle{
		must(v.x.Allocate(1<<20, ucp.MemConfig{})), must(v.x.Register(make([]byte, 1<<20), ucp.MemConfig{})),
	} {
		v.say(hex.EncodeToString(m.Key()))
	}
	var n uint64
	for {
		if s, ok := v.heard(); ok {
			check(scanLine(s, &n))
			break
		}
	}
	buf := make([]byte, 8)
	for i := range n {
		must(v.w.TagRecv(buf, tagStream, allBits).Wait(v.ctx))
		if got := binary.LittleEndian.Uint64(buf); got != i {
			check(&orderError{got, i})
		}
	}
	v.say("got them")
}

// access uses the test's memory for ever.
func (v *peer) access() {
	var keys []*ucp.RemoteKey
	for range 2 {
		keys = append(keys, must(v.unpack(v.e, v.hear())))
	}
	add := must(ucp.AtomicAt[uint64](keys[0], 0))
	buf := make([]byte, 256<<10)
	v.say("accessing")
	for {
		for _, k := range keys {
			check(k.Put(buf, 4096).Wait(v.ctx))
			check(k.Get(buf, 4096).Wait(v.ctx))
		}
		add.Add(1)
		must(add.FetchAdd(1).Wait(v.ctx))
		v.w.Progress()
	}
}

// leave sends messages of these sizes, closes everything, and ends. The sender
// of a message is their number.
func (v *peer) leave(sizes ...int) {
	for n, size := range sizes {
		p := make([]byte, size)
		fill(p, uint32(len(sizes)), uint64(n))
		v.e.TagSend(p, tagStream) // dropped: Close waits for it
	}
	check(v.x.Close())
}

// closeWorker meets the test and closes in order when told to.
func (v *peer) closeWorker() {
	v.say("ready")
	must(v.w.TagRecv(make([]byte, 8), tagPing, allBits).Wait(v.ctx))
	v.say("met")
	for {
		v.nap(v.w.Progress())
		if _, ok := v.heard(); ok {
			check(v.w.Close())
			v.say("closed")
			v.hear()
		}
	}
}
