package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// errCompletion: an operation failed.
var errCompletion = errors.New("completion with an error")

// Times of waiting.
const (
	// graceTime is how long a transfer goes on after the peer has closed its connection.
	graceTime = time.Second
	// eventTime is the longest sleep in -e, between two looks at the connection.
	eventTime = 100 * time.Millisecond
	// looks is the number of empty polls between two looks at the time.
	looks = 64
)

// recvFlag marks the IDs of receives. The lower bits are the slot.
const recvFlag = 1 << 63

// transfer sends count messages on each queue pair if send is set, and receives as many if
// receive is. It returns when all are complete.
func (r *run) transfer(send, receive bool) error {
	r.start()
	defer r.stop()
	want := r.plan.qps * r.plan.iters
	for send && r.sent < want || receive && r.received < want {
		if send {
			if err := r.fill(); err != nil {
				return err
			}
		}
		if err := r.progress(); err != nil {
			return fmt.Errorf("after %d messages sent and %d received of %d: %w", r.sent, r.received, want, err)
		}
	}
	return nil
}

// start and stop surround a transfer, whose time they measure.
func (r *run) start() {
	r.sent, r.received, r.transferStart = 0, 0, ucs.Now()
	for _, l := range r.lanes {
		l.posted, l.sent, l.received = 0, 0, 0
	}
}

func (r *run) stop() { r.elapsed = ucs.Now().Sub(r.transferStart) }

// fill posts messages until the send queues are full.
func (r *run) fill() error {
	for _, l := range r.lanes {
		for l.posted < r.plan.iters && l.posted-l.sent < r.tx {
			if err := r.post(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// post posts the next message of a queue pair. It is signaled.
func (r *run) post(l *lane) error {
	k, size := l.posted, r.plan.size
	wr := verbs.SendWR{ID: uint64(k % r.tx), Op: r.plan.opcode(), Flags: verbs.SendSignaled, NumSG: 1, QPN: l.remote.QPN, QKey: udQKey, AH: l.ah}
	switch r.plan.test.verb {
	case verbRead, verbAtomic:
		slot := l.index*r.tx + k%r.tx
		wr.SG[0] = verbs.SGE{Addr: r.slots.Addr() + uint64(slot*r.slotSize), Len: uint32(size), LKey: r.slots.LKey()}
	default:
		wr.SG[0] = verbs.SGE{Addr: r.out.Addr() + uint64(r.outOffset(l, k)), Len: uint32(size), LKey: r.out.LKey()}
		if size <= r.plan.inline {
			wr.Flags |= verbs.SendInline
		}
	}
	if r.plan.test.verb != verbSend {
		wr.Remote, wr.RKey = l.remote.VA+uint64(r.remoteOffset(k)), l.remote.RKey
	}
	if wr.Op == verbs.OpFetchAdd {
		wr.Swap = 1
	} else if wr.Op == verbs.OpCompareSwap {
		wr.Compare, wr.Swap = uint64(k/r.turn()), uint64(k/r.turn()+1)
	}
	n, st := l.qp.PostSend([]verbs.SendWR{wr})
	if n != 1 {
		return fmt.Errorf("post message %d of queue pair %d: %w", k, l.index, st.Err())
	}
	l.posted++
	return nil
}

// turn returns the number of messages after which addresses repeat, as perftest does it: short
// messages walk through its cycle buffer in steps of cache lines.
func (r *run) turn() int {
	if r.plan.size > r.cycle/2 {
		return 1
	}
	return r.cycle / r.step()
}

// step returns the distance of two messages in the cycle buffer.
func (r *run) step() int { return max((r.plan.size+r.line-1)/r.line*r.line, r.line) }

// remoteOffset returns where in the peer's memory operation k goes. In a latency test it is
// always the same place, where the peer polls.
func (r *run) remoteOffset(k int) int {
	if r.plan.test.pattern == latency {
		return 0
	}
	return k % r.turn() * r.step()
}

// prefill posts all receives.
func (r *run) prefill() error {
	if r.srq != nil {
		for slot := range r.plan.qps * r.rx {
			if err := r.postRecv(nil, slot); err != nil {
				return err
			}
		}
		return nil
	}
	for _, l := range r.lanes {
		for i := range r.rx {
			if err := r.postRecv(l, l.index*r.rx+i); err != nil {
				return err
			}
		}
	}
	return nil
}

// postRecv posts the receive of a slot.
func (r *run) postRecv(l *lane, slot int) error {
	wr := verbs.RecvWR{ID: recvFlag | uint64(slot), NumSG: 1}
	wr.SG[0] = verbs.SGE{Addr: r.slots.Addr() + uint64(slot*r.slotSize), Len: uint32(r.plan.size + r.grh()), LKey: r.slots.LKey()}
	post := func() (int, ucs.Status) { return r.srq.PostRecv([]verbs.RecvWR{wr}) }
	if r.srq == nil {
		post = func() (int, ucs.Status) { return l.qp.PostRecv([]verbs.RecvWR{wr}) }
	}
	if n, st := post(); n != 1 {
		return fmt.Errorf("post receive %d: %w", slot, st.Err())
	}
	return nil
}

// grh returns the bytes before the payload of a received message.
func (r *run) grh() int {
	if r.plan.typ == verbs.UD {
		return grhSize
	}
	return 0
}

// progress handles completions. It waits for them for a short time only.
func (r *run) progress() error {
	n := r.cq.Poll(r.wcs[:])
	if n == 0 && r.channel != nil {
		var err error
		if n, err = r.sleep(); err != nil {
			return err
		}
	}
	if n < 0 {
		return errors.New("the completion queue overran")
	}
	for i := range r.wcs[:n] {
		if err := r.complete(&r.wcs[i]); err != nil {
			return err
		}
	}
	if n > 0 {
		if r.channel != nil && ucs.Now() >= r.deadline { // there may be a completion after each sleep
			return errLimit
		}
		return nil
	}
	if r.empty++; r.empty%looks == 0 || r.channel != nil {
		runtime.Gosched()
		return r.look()
	}
	return nil
}

// look returns why the run cannot go on, if so.
func (r *run) look() error {
	now := ucs.Now()
	if now >= r.deadline {
		return errLimit
	}
	if r.ctl == nil || r.plan.test.pattern == pingpong { // which closes the connection early
		return nil
	}
	err := r.ctl.ended()
	if err == nil {
		return nil
	}
	if r.closed == 0 {
		r.closed = now
	}
	if now.Sub(r.closed) > graceTime {
		return err
	}
	return nil
}

// sleep arms the completion queue and sleeps until a completion, for eventTime at most. It returns
// the number of completions in r.wcs.
func (r *run) sleep() (int, error) {
	if st := r.cq.Arm(false); st != ucs.OK {
		return 0, fmt.Errorf("arm the completion queue: %w", st.Err())
	}
	if n := r.cq.Poll(r.wcs[:]); n != 0 {
		return n, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), eventTime)
	defer cancel()
	if _, err := r.channel.Event(ctx); err != nil && ctx.Err() == nil {
		return 0, fmt.Errorf("wait for a completion: %w", err)
	}
	return r.cq.Poll(r.wcs[:]), nil
}

// complete handles one completion.
func (r *run) complete(wc *verbs.WC) error {
	l := r.byQPN[wc.QPN]
	if l == nil {
		return fmt.Errorf("completion of queue pair %#x, which is not of this run: %w", wc.QPN, errCompletion)
	}
	if wc.Status != verbs.WCSuccess {
		what, k := "message", l.sent
		if wc.ID&recvFlag != 0 {
			what, k = "receive", l.received
		}
		return fmt.Errorf("%s %d of queue pair %d: %v: %w", what, k, l.index, wc.Status, errCompletion)
	}
	if wc.ID&recvFlag != 0 {
		return r.completeRecv(l, wc)
	}
	if err := r.checkResult(l, l.sent); err != nil {
		return err
	}
	l.sent++
	r.sent++
	return nil
}

// completeRecv checks a received message and posts its slot again.
func (r *run) completeRecv(l *lane, wc *verbs.WC) error {
	slot := int(wc.ID &^ recvFlag)
	b := r.slots.Bytes()[slot*r.slotSize:][:r.slotSize]
	what := fmt.Sprintf("message %d of queue pair %d", l.received, l.index)
	if want := r.plan.size + r.grh(); int(wc.Len) != want {
		return fmt.Errorf("%s: %d bytes, want %d: %w", what, wc.Len, want, errData)
	}
	if r.grh() > 0 {
		if err := r.checkGRH(l, wc, b[:grhSize]); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		b = b[grhSize:]
	}
	if err := r.onReceive(l, l.received, b[:r.plan.size]); err != nil {
		return err
	}
	l.received++
	r.received++
	return r.postRecv(l, slot)
}
