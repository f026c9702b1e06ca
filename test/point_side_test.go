//go:build linux

package test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucp"
)

// multiEnv has a side use a worker of any goroutine.
const multiEnv = "GOUCX_TEST_MULTI"

// threadsEnv has a side send through a Thread, and others wait for the peer meanwhile.
const threadsEnv = "GOUCX_TEST_SIDE_THREADS"

// errGiveUp ends a wait of a side when the test says so.
var errGiveUp = errors.New("told to give up")

// roundsAfter is how many rounds a side does after a stop before it is believed.
const roundsAfter = 10

// side is one of two processes of which one reaches a fault point. Its lines:
//
//	heard: activity, the bystander's address; said: own address
//	heard: the peer's address, "go"; said: "posted"
//	heard: "give up"; said: "gave up", "went on"
//	heard: "resume"; said: "resumed", after some more rounds
//	said, when the peer failed: "ended" with the time and the reason, "refused", "closed"
//	heard: "end"
type side struct {
	*parent
	*node
	peer     string
	e        ucp.Endpoint // to the peer
	out      ucp.Endpoint // what the side sends by: e, or through thread
	thread   *ucp.Thread
	waiters  []chan error // of Threads, until the peer fails
	bystands ucp.Endpoint
	ctx      context.Context
	giveUp   context.CancelCauseFunc
	resume   chan struct{}
	standing []ucp.RecvRequest // end with the peer alone
	after    int               // rounds until "resumed" is said
	mapped   []byte            // memory for a buffer that the peer maps
	buffers  [][]byte          // with the canaries around them
}

const (
	canary     = 4096 // bytes before and behind a buffer
	canaryByte = 0xca
)

// buffer returns n bytes for messages, with canaries around them.
func (v *side) buffer(n int) []byte {
	all := v.mapped
	if v.mapped = nil; all == nil {
		all = make([]byte, n+2*canary)
	}
	v.buffers = append(v.buffers, all)
	for i := range canary {
		all[i], all[len(all)-1-i] = canaryByte, canaryByte
	}
	return all[canary:][:n:n]
}

// untouched checks the canaries; with whole the buffers, too.
func (v *side) untouched(whole bool) {
	for _, all := range v.buffers {
		for i, b := range all {
			if b != canaryByte && (i < canary || i >= len(all)-canary || whole) {
				check(fmt.Errorf("byte %d of a buffer of %d, from its canary on, has changed", i, len(all)))
			}
		}
	}
}

// roleSide behaves as it is told until its peer fails, and then says how that was.
func roleSide(p *parent) {
	mode := ucp.ThreadSingle
	if os.Getenv(multiEnv) != "" {
		mode = ucp.ThreadMulti
	}
	v := &side{parent: p, node: must(newNode(mode, 2*time.Second)), resume: make(chan struct{}, 1)}
	name := p.hear()
	act := activities[name]
	if strings.HasSuffix(name, "mapped") {
		v.mapped = must(v.x.Allocate(big+2*canary, ucp.MemConfig{})).Bytes()
	}
	v.bystands = must(v.connect(p.hear()))
	p.say(v.address())
	check(scanLine(p.hear(), &v.peer))
	check(pingPong(context.Background(), v.w, v.bystands, 5))
	v.say("met")
	if os.Getenv(threadsEnv) != "" {
		v.thread = must(v.w.NewThread())
	}
	v.connectPeer()
	for s := v.hear(); s != "go"; s = v.hear() {
	}
	v.ctx, v.giveUp = context.WithCancelCause(context.Background())
	go v.obey()
	if v.thread != nil {
		for range 3 {
			v.waiters = append(v.waiters, v.waitByThread())
		}
	}
	v.failed(act(v))
	for {
		v.w.Progress() // what ended is taken away
		select {
		case <-v.resume:
			check(v.x.Close())
			return
		default:
		}
	}
}

// connectPeer makes the endpoints to the peer.
func (v *side) connectPeer() {
	v.e = must(v.connect(v.peer))
	if v.out = v.e; v.thread != nil {
		v.out = v.e.On(v.thread)
	}
}

func (v *side) closePeer() error {
	if v.thread == nil {
		return v.e.Close()
	}
	return errors.Join(v.out.Close(), v.e.Close())
}

// waitByThread has a goroutine send through a Thread what the peer never receives. Each request must end
// once, with the peer, and the goroutine with the first reason.
func (v *side) waitByThread() chan error {
	th, done := must(v.w.NewThread()), make(chan error, 1)
	e := must(v.connect(v.peer))
	go func() {
		et := e.On(th)
		rs := []ucp.Request{
			et.TagSendSync(make([]byte, 8), tagWaiter), et.TagSendSync(make([]byte, announced), tagWaiter), et.TagSend(make([]byte, announced), tagWaiter),
		}
		ends := make([]int, len(rs))
		var reason error
		for i, r := range rs {
			pending := r.Notify(func(c ucp.Completion) {
				ends[i]++
				reason = cmp.Or(reason, c.Err)
			}, 0)
			if !pending { // the peer was gone already
				ends[i]++
				reason = cmp.Or(reason, r.Err())
			}
		}
		for slices.Contains(ends, 0) {
			if th.Progress() == 0 {
				time.Sleep(100 * time.Microsecond) // the process has others that are tested
			}
		}
		for range 1000 {
			th.Progress()
		}
		if slices.Max(ends) > 1 {
			reason = fmt.Errorf("requests have ended %v times", ends)
		}
		check(errors.Join(th.Close(), e.Close()))
		done <- reason
	}()
	return done
}

// obey takes lines while the side works.
func (v *side) obey() {
	for s := range v.lines {
		switch s {
		case "give up":
			v.giveUp(errGiveUp)
		default:
			v.resume <- struct{}{}
		}
	}
}

// post posts receives that only the peer's failure ends, and says so.
func (v *side) post() {
	for range 4 {
		v.standing = append(v.standing, v.w.TagRecv(make([]byte, 8), tagNever, allBits).Tie(v.e))
	}
	v.say("posted")
}

// wait calls f, which waits, until it ends otherwise than by giving up. What ends
// well although it was told to give up needs nobody to wait for.
func (v *side) wait(f func(context.Context) error) error {
	for {
		err := f(v.ctx)
		gaveUp := errors.Is(err, errGiveUp)
		if gaveUp || err == nil && v.ctx.Err() != nil {
			v.goOn()
			<-v.resume
			v.ctx, v.giveUp = context.WithCancelCause(context.Background())
			v.after = roundsAfter
		}
		if !gaveUp {
			return err
		}
	}
}

// round notes that the activity has done something with the peer.
func (v *side) round() {
	if v.after > 0 {
		if v.after--; v.after == 0 {
			v.say("resumed")
		}
	}
}

// goOn is what must be possible while the peer stands still: to cancel what waits
// for it, and to exchange messages with others.
func (v *side) goOn() {
	v.say("gave up")
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience/2, errors.New("it cannot be cancelled"))
	defer cancel()
	recv := v.w.TagRecv(make([]byte, 8), tagNever, allBits).Tie(v.e)
	recv.Cancel()
	if _, err := recv.Wait(ctx); !errors.Is(err, ucp.ErrCanceled) {
		check(fmt.Errorf("a cancelled receive: %w", err))
	}
	send := v.out.TagSend(make([]byte, big), tagBig)
	send.Cancel()
	if err := send.Wait(ctx); !errors.Is(err, ucp.ErrCanceled) {
		check(fmt.Errorf("a cancelled send: %w", err))
	}
	for _, r := range v.standing {
		if r.Done() {
			check(errors.New("a receive from the stopped peer has ended"))
		}
	}
	check(pingPong(ctx, v.w, v.bystands, roundsAfter))
	v.say("went on")
}

// failed: the peer is dead, err is what the activity got. All that concerned the
// peer ends with that reason, and only that.
func (v *side) failed(err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience/2, errors.New("it does not end"))
	defer cancel()
	reasons := []error{err}
	for _, r := range v.standing {
		_, err := r.Wait(ctx)
		reasons = append(reasons, err)
	}
	for _, c := range v.waiters {
		select {
		case err := <-c:
			reasons = append(reasons, err)
		case <-ctx.Done():
			reasons = append(reasons, context.Cause(ctx))
		}
	}
	v.say("ended", time.Now().UnixNano(), v.verdict(reasons))
	v.untouched(false)
	for _, all := range v.buffers { // nobody else writes to them any more
		for i := range all {
			all[i] = canaryByte
		}
	}
	p := make([]byte, 100)
	_, recv := v.w.TagRecv(p, tagNever, allBits).Tie(v.e).Wait(ctx)
	if v.thread != nil { // it learns of the end when it progresses
		for v.out.TagSend(p, 1).Wait(ctx) == nil {
			v.thread.Progress()
		}
	}
	v.say("refused", v.verdict([]error{
		v.out.TagSend(p, 1).Wait(ctx), v.out.TagSend(make([]byte, big), 1).Wait(ctx), v.out.TagSendInline(p[:8], 1).Wait(ctx),
		v.out.TagSendUint64(1, 1).Wait(ctx), v.out.Flush().Wait(ctx), recv, v.e.Info().Err, v.out.Info().Err,
	}))
	if err := pingPong(ctx, v.w, v.bystands, roundsAfter); err != nil {
		check(fmt.Errorf("another endpoint: %w", err))
	}
	check(v.closePeer())
	if v.thread != nil {
		check(v.thread.Close())
	}
	v.untouched(true)
	v.say("closed")
}

// verdict is the common reason of the errors, or the one that is no such reason.
func (v *side) verdict(errs []error) string {
	for i, err := range errs {
		if !errors.Is(err, ucp.ErrPeerFailed) && !errors.Is(err, ucp.ErrUnreachable) {
			return fmt.Sprintf("wrong: error %d of %d is %v", i, len(errs), err)
		}
	}
	return errs[0].Error()
}

// sleep arms the worker and sleeps until there is something to do.
func (v *side) sleep(ctx context.Context) error {
	if v.w.Progress() > 0 || v.w.Arm() != nil {
		return context.Cause(ctx)
	}
	fd, err := v.w.EventFD()
	if err != nil {
		return err
	}
	const now = 20 // ms: to look at ctx
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, now)
	return context.Cause(ctx)
}
