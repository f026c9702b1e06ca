package ucptest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
)

// Tags of the oracle: direction, whether the message may be canceled, its number, and
// what receives look at.
const (
	tagFrom     = 56 // bit: direction
	tagCanceled = 55 // bit: of a class of its own, which is matched by itself
	tagNumber   = 8  // bit
	lowTags     = 4

	classMask = exact - (1<<tagCanceled - 1)
	lowMask   = classMask | 0xff
)

// sent is a tag message.
type sent struct {
	tag      ucp.Tag
	n        int
	v        uint64 // seed of its content
	at       int
	epoch    int
	along    bool // its data goes along, whatever the receiver does
	canceled bool // it was asked for, before the end was seen
	ended    bool
	err      error // with ended
	r        ucp.Request
}

// received is a receive.
type received struct {
	r         ucp.RecvRequest
	buf       []byte
	tag, mask ucp.Tag
	got       *sent
}

// tags is the model of a direction's tag messages: a naive matcher, by the order of
// posting.
type tags struct {
	number    uint64
	unmatched []*sent
	bytes     int         // of unmatched
	receives  []*received // not ended

	// The class of those that may be canceled.
	loose      []*sent // sent and not received, in the order of sending
	looseRecvs []*received
	lost       int // receives that ended with a message's cancel
}

// limits are the lengths around which sizes lie: of cells, segments and thresholds.
var limits = []int{8, 48, 64, 256, 480, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 100_000, 300_000}

// size is the length of a message, mostly a short one.
func (o *order) size() int {
	l := limits[min(o.r.IntN(len(limits)), o.r.IntN(len(limits)))]
	switch o.r.IntN(3) {
	case 0:
		return o.r.IntN(l + 1)
	case 1:
		return l - 1 + o.r.IntN(3)
	default:
		return max(l-40+o.r.IntN(48), 0) // around the limit without the heads
	}
}

// send sends a tag message in any form.
func (o *order) send(loose bool) {
	m := &sent{n: o.size(), v: o.r.Uint64(), at: o.at, epoch: o.epoch()}
	m.tag = ucp.Tag(o.dir)<<tagFrom | ucp.Tag(o.tags.number)<<tagNumber | ucp.Tag(o.r.IntN(lowTags))
	if loose {
		m.tag |= 1 << tagCanceled
	}
	o.tags.number++
	data := make([]byte, m.n)
	scribble(data, m.v)
	m.along = m.n <= o.rndv && (o.rndv != defaultRndv || m.n <= fetchThresh)
	name := "tag send"
	switch f := o.r.IntN(8); {
	case f == 0:
		m.r, m.along, name = o.ep.TagSendSync(data, m.tag), false, "tag send sync"
	case f == 1:
		m.r, m.along, name = o.ep.TagSendWith(data, m.tag, ucp.Opts{Flags: ucp.ForceRendezvous}), false, "tag send by rendezvous"
	case f == 2:
		m.r, m.along, name = o.ep.TagSendWith(data, m.tag, ucp.Opts{Flags: ucp.ForceEager}), true, "tag send eager"
	case f == 3:
		third := m.n / 3
		m.r, name = o.ep.TagSendV([][]byte{data[:third], nil, data[third:]}, m.tag), "tag send of pieces"
	case f == 4 && m.n <= 64:
		m.r, name = o.ep.TagSendInline(data, m.tag), "tag send inline"
	case f == 5 && m.n >= 8:
		m.n, m.along = 8, o.rndv >= 8
		m.r, name = o.ep.TagSendUint64(binary.LittleEndian.Uint64(data), m.tag), "tag send of a word"
	default:
		m.r = o.ep.TagSend(data, m.tag)
	}
	m.along = m.along && !o.throttled
	if loose {
		o.tags.loose = append(o.tags.loose, m)
		name += " that may be canceled"
	} else {
		o.matchSend(m)
	}
	o.post(m.r, name, m.n, func() {
		if !m.ended {
			m.ended, m.err = true, m.r.Err()
		}
		if !m.canceled || !errors.Is(m.err, ucp.ErrCanceled) {
			require.NoError(o.t, m.err, "message %#x", m.tag)
		}
		clear(data)
	})
}

// matchSend matches m with the oldest receive that fits.
func (o *order) matchSend(m *sent) {
	for _, v := range o.tags.receives {
		if v.got == nil && (v.tag^m.tag)&v.mask == 0 {
			v.got = m
			return
		}
	}
	o.tags.unmatched = append(o.tags.unmatched, m)
	o.tags.bytes += m.n
}

// receive posts a receive: of a tag, of any, or of one message that was sent.
func (o *order) receive() {
	tag, mask := ucp.Tag(o.dir)<<tagFrom|ucp.Tag(o.r.IntN(lowTags)), lowMask
	n := o.size()
	switch k := len(o.tags.unmatched); {
	case k > 0 && o.r.IntN(3) == 0:
		tag, mask = o.tags.unmatched[o.r.IntN(k)].tag, exact
	case o.r.IntN(3) == 0:
		mask = classMask
	}
	o.receiveInto(tag, mask, n)
}

func (o *order) receiveInto(tag, mask ucp.Tag, n int) {
	v := &received{tag: tag, mask: mask}
	if i := slices.IndexFunc(o.tags.unmatched, func(m *sent) bool { return (v.tag^m.tag)&v.mask == 0 }); i >= 0 {
		m := o.tags.unmatched[i]
		o.tags.unmatched = slices.Delete(o.tags.unmatched, i, i+1)
		o.tags.bytes -= m.n
		v.got = m
		if o.r.IntN(4) != 0 {
			n = m.n
		}
	}
	v.buf = make([]byte, n)
	v.r = o.to.TagRecv(v.buf, v.tag, v.mask)
	o.tags.receives = append(o.tags.receives, v)
}

// receiveAll posts receives for all that were sent.
func (o *order) receiveAll() {
	for len(o.tags.unmatched) > 0 {
		m := o.tags.unmatched[0]
		o.receiveInto(m.tag, exact, m.n)
	}
	for len(o.tags.looseRecvs) < len(o.tags.loose) {
		o.receiveLoose()
	}
}

// dropReceive cancels a receive that nothing fits.
func (o *order) dropReceive() {
	i := slices.IndexFunc(o.tags.receives, func(v *received) bool { return v.got == nil })
	if i < 0 {
		return
	}
	v := o.tags.receives[i]
	o.tags.receives = slices.Delete(o.tags.receives, i, i+1)
	v.r.Cancel()
	_, err := o.p.Recv(v.r)
	require.ErrorIs(o.t, err, ucp.ErrCanceled, "a receive that nothing fits")
}

// lookReceives takes the receives that have ended.
func (o *order) lookReceives() {
	o.tags.receives = slices.DeleteFunc(o.tags.receives, func(v *received) bool {
		if !v.r.Done() {
			return false
		}
		got, err := v.r.Wait(o.p.deadline)
		if v.got == nil {
			o.fail("a receive of %#x under %#x got message %#x, which does not fit: %v", v.tag, v.mask, got.Tag, err)
		}
		o.check(v, v.got, got, err)
		return true
	})
	for len(o.tags.looseRecvs) > 0 && o.tags.looseRecvs[0].r.Done() {
		v := o.tags.looseRecvs[0]
		o.tags.looseRecvs = o.tags.looseRecvs[1:]
		o.endLoose(v)
	}
}

// check holds what a receive got to the message that the model expects for it.
func (o *order) check(v *received, m *sent, got ucp.Message, err error) {
	if got.Tag != m.tag {
		o.fail("a receive of %#x under %#x got message %#x before %#x", v.tag, v.mask, got.Tag, m.tag)
	}
	require.Equal(o.t, m.n, got.Len)
	n := min(m.n, len(v.buf))
	if n < m.n {
		require.ErrorIs(o.t, err, ucp.ErrTruncated)
	} else {
		require.NoError(o.t, err)
	}
	want := make([]byte, m.n)
	scribble(want, m.v)
	require.Equal(o.t, string(want[:n]), string(v.buf[:n]), "message %#x", m.tag)
	o.shows(o.begins[m.epoch], "a message was received")
}

// receiveLoose posts a receive of the class that may be canceled.
func (o *order) receiveLoose() {
	v := &received{tag: ucp.Tag(o.dir)<<tagFrom | 1<<tagCanceled, mask: classMask, buf: make([]byte, 300_100)}
	v.r = o.to.TagRecv(v.buf, v.tag, v.mask)
	o.tags.looseRecvs = append(o.tags.looseRecvs, v)
}

// endLoose takes the oldest receive of that class, which has ended: it got the oldest
// message, or one behind those whose cancel took effect.
func (o *order) endLoose(v *received) {
	got, err := v.r.Wait(o.p.deadline)
	if errors.Is(err, ucp.ErrCanceled) {
		o.tags.lost++
		return
	}
	for len(o.tags.loose) > 0 {
		m := o.tags.loose[0]
		o.tags.loose = o.tags.loose[1:]
		if m.tag == got.Tag {
			o.check(v, m, got, err)
			return
		}
		if !m.withdrawn() {
			o.fail("a receive got message %#x before %#x", got.Tag, m.tag)
		}
		o.tags.lost--
	}
	o.fail("a receive got message %#x, which was not sent, or twice", got.Tag)
}

// withdrawn reports whether the cancel of m took effect.
func (m *sent) withdrawn() bool {
	if !m.ended && m.r.Done() {
		m.ended, m.err = true, m.r.Err()
	}
	return m.ended && errors.Is(m.err, ucp.ErrCanceled)
}

// cancel cancels a send.
func (o *order) cancel() {
	n := len(o.tags.loose)
	if n == 0 {
		return
	}
	if m := o.tags.loose[n-1-o.r.IntN(min(n, 8))]; !m.r.Done() {
		m.canceled = true
		m.r.Cancel()
	}
}

// endClass receives all that is left of the class, up to a last message that is not
// canceled. The other direction's messages are received too: over self both directions have one
// connection, of whose rendezvous credits they may have taken all.
func (o *order) endClass() {
	o.send(true)
	last := o.tags.loose[len(o.tags.loose)-1]
	for slices.Contains(o.tags.loose, last) {
		o.help()
		o.inTime("the last of the messages that may be canceled")
	}
	require.LessOrEqual(o.t, o.tags.lost, 0, "receives that ended with a cancel, but for messages that were canceled")
	for _, v := range o.tags.looseRecvs {
		v.r.Cancel()
		_, err := o.p.Recv(v.r)
		require.ErrorIs(o.t, err, ucp.ErrCanceled)
	}
	o.tags.looseRecvs = nil
}

// amSent is an active message.
type amSent struct {
	at, epoch int
	n         int
	v         uint64
	r         ucp.Request
}

// amSeen is what the handler saw of one, and the words of the target's memory at that
// time.
type amSeen struct {
	number uint64
	bad    string
	kept   ucp.RetainedAM
	keeps  bool
	words  [2][]uint64 // looked at one after the other
}

// ams is the model of a direction's active messages.
type ams struct {
	sent  []*amSent // by number
	next  uint64    // that is handled next
	kept  []amSeen  // rendezvous that were not fetched
	recvs []amRecv

	mu  sync.Mutex
	got []amSeen // handled, not looked at
}

type amRecv struct {
	r   ucp.RecvRequest
	m   *amSent
	buf []byte
}

func (o *order) amID() ucp.AMID { return ucp.AMID(40 + o.dir) }

// amHead is the length of the number in a message's header, or in its data.
const amHead = 8

// handle has the target's handler note what comes.
func (o *order) handle() {
	require.NoError(o.t, o.to.HandleAM(o.amID(), func(m *ucp.AM) {
		var g amSeen
		for i := range g.words {
			for _, pl := range o.words {
				g.words[i] = append(g.words[i], pl.m.Load64(pl.off))
			}
		}
		data := m.Data
		switch {
		case len(m.Header) >= amHead:
			g.number = binary.LittleEndian.Uint64(m.Header)
		case len(data) >= amHead:
			g.number, data = binary.LittleEndian.Uint64(data), data[amHead:]
		default:
			g.bad = "a message without its number"
		}
		if m.Rendezvous && g.number%4 != 0 {
			g.kept, g.keeps = m.Retain(), true
		}
		if !m.Rendezvous {
			want := make([]byte, len(data))
			scribble(want, g.number)
			if string(want) != string(data) {
				g.bad = "wrong data"
			}
		}
		o.ams.mu.Lock()
		o.ams.got = append(o.ams.got, g)
		o.ams.mu.Unlock()
	}))
}

// sendAM sends an active message in any form.
func (o *order) sendAM() {
	number := uint64(len(o.ams.sent))
	m := &amSent{at: o.at, epoch: o.epoch(), n: o.size(), v: number}
	header := binary.LittleEndian.AppendUint64(nil, number)
	header = append(header, make([]byte, o.r.IntN(2)*o.r.IntN(60))...)
	data := make([]byte, m.n)
	scribble(data, number)
	flags, name := ucp.Flags(0), "active message"
	switch f := o.r.IntN(8); {
	case f == 0:
		flags, name = ucp.ForceRendezvous, "active message by rendezvous"
	case f == 1:
		flags, name = ucp.ForceEager, "active message eager"
	case f < 4 && m.n+amHead <= o.rndv:
		header, data, name = nil, append(header[:amHead:amHead], data...), "active message without header"
	}
	m.r = o.ep.AMSendWith(o.amID(), header, data, ucp.Opts{Flags: flags})
	clear(header)
	o.ams.sent = append(o.ams.sent, m)
	o.post(m.r, name, m.n, func() {
		require.NoError(o.t, m.r.Err())
		clear(data)
	})
}

// lookAMs takes what the handler noted.
func (o *order) lookAMs() {
	o.ams.mu.Lock()
	got := o.ams.got
	o.ams.got = nil
	o.ams.mu.Unlock()
	for _, g := range got {
		require.Empty(o.t, g.bad)
		if g.number != o.ams.next && !o.throttled {
			o.fail("active message %d was handled before %d", g.number, o.ams.next)
		}
		o.ams.next++
		m := o.ams.sent[g.number]
		at := o.begins[m.epoch]
		for _, seen := range g.words {
			was := at
			for i, pl := range o.words {
				if w := o.word(pl, seen[i], was, "an active message was handled"); w.epoch >= 0 {
					at = max(at, o.begins[w.epoch])
				}
			}
		}
		o.known = max(o.known, at)
		if g.keeps {
			o.ams.kept = append(o.ams.kept, g)
		}
	}
	o.ams.recvs = slices.DeleteFunc(o.ams.recvs, func(v amRecv) bool {
		if !v.r.Done() {
			return false
		}
		got, err := v.r.Wait(o.p.deadline)
		require.NoError(o.t, err)
		require.Equal(o.t, v.m.n, got.Len)
		want := make([]byte, v.m.n)
		scribble(want, v.m.v)
		require.Equal(o.t, string(want), string(v.buf))
		return true
	})
}

// fetch asks for the data of a rendezvous that was kept, or turns it down.
func (o *order) fetch() {
	if len(o.ams.kept) == 0 {
		return
	}
	i := o.r.IntN(len(o.ams.kept))
	g := o.ams.kept[i]
	o.ams.kept = slices.Delete(o.ams.kept, i, i+1)
	if o.r.IntN(8) == 0 {
		g.kept.Release()
		return
	}
	m := o.ams.sent[g.number]
	v := amRecv{m: m, buf: make([]byte, m.n)}
	v.r = g.kept.RecvInto(v.buf)
	o.ams.recvs = append(o.ams.recvs, v)
}

// arrived wants every message posted before position at to be with the target, which
// gets no help from the sender any more.
func (o *order) arrived(at int) {
	if !o.direct {
		return
	}
	missing := func() string {
		for _, m := range o.tags.unmatched {
			if _, ok := o.to.TagProbe(m.tag, exact); m.at < at && !ok {
				return fmt.Sprintf("message %#x of %d bytes, posted at %d, which was not received", m.tag, m.n, m.at)
			}
		}
		for _, v := range o.tags.receives {
			if m := v.got; m != nil && m.at < at && m.along && !v.r.Done() {
				return fmt.Sprintf("message %#x of %d bytes, posted at %d, for a receive of %d bytes", m.tag, m.n, m.at, len(v.buf))
			}
		}
		if n := int(o.ams.next); n < len(o.ams.sent) && o.ams.sent[n].at < at && !o.throttled {
			return fmt.Sprintf("active message %d of %d bytes, posted at %d", n, o.ams.sent[n].n, o.ams.sent[n].at)
		}
		return ""
	}
	for end := ucs.Now().Add(10 * time.Second); ; {
		what := missing()
		if what == "" {
			return
		}
		if ucs.Now() > end {
			o.fail("what was posted at %d or later has taken effect, but not %s", at, what)
		}
		o.to.Progress()
		o.lookAMs()
	}
}
