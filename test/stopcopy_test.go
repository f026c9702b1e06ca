//go:build linux

package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucp"
)

// stopCopyRow has one of two sides stop inside of the copy of a message, or between two pieces of it. The other ends
// its request, which is to end with an error and to change that many pieces of the buffer later.
type stopCopyRow struct {
	point  fault.Point
	sends  string // kind of memory of the sender's buffer
	gets   string // of the receiver's
	how    string // the other side's request ends
	want   error
	pieces int
}

var stopCopyRows = []stopCopyRow{
	{fault.Help, "heap", "heap", "cancel", ucp.ErrCanceled, 0},
	{fault.Help, "mapped", "heap", "cancel", ucp.ErrCanceled, 0},
	{fault.Help, "heap", "mapped", "cancel", ucp.ErrBufferExposed, 1},
	{fault.Help, "mapped", "mapped", "cancel", ucp.ErrBufferExposed, 1},
	{fault.Piece, "heap", "heap", "cancel", ucp.ErrCanceled, 0},
	{fault.Piece, "mapped", "mapped", "cancel", ucp.ErrCanceled, 0},
	{fault.PieceCopied, "mapped", "mapped", "cancel", ucp.ErrCanceled, 0},
	{fault.Help, "heap", "heap", "close", ucp.ErrClosed, 0},
	{fault.Help, "mapped", "mapped", "close", ucp.ErrBufferExposed, 1},
	{fault.HelpCopied, "mapped", "mapped", "close", ucp.ErrClosed, 0},
	{fault.Piece, "mapped", "mapped", "close", ucp.ErrClosed, 0},
}

// TestStoppedCopy: a request whose peer is stopped inside of the copy of a message can be ended soon. After SIGCONT the
// peer writes at most the piece that it had claimed, and nothing without a mapping.
func TestStoppedCopy(t *testing.T) {
	withinHost(t)
	faulty.Do(buildFaulty)
	require.NoError(t, faulty.err)
	for _, row := range stopCopyRows {
		t.Run(fmt.Sprintf("%s, %s to %s, %s", row.point, row.sends, row.gets, row.how), row.run)
	}
}

// start starts both sides, and returns when one has stopped.
func (row stopCopyRow) start(t *testing.T) (stopped, survivor *process) {
	plan := fmt.Sprintf("%s=%s:%d:STOP", fault.PlanEnv, row.point, 70)
	side := func(what, memory string, stops bool) (*process, string) {
		p := start(t, "copier", func(c *exec.Cmd) {
			c.Path = faulty.path
			if stops {
				c.Env = append(c.Env, plan)
			}
		})
		p.say(what, memory, row.how)
		return p, p.hear()
	}
	senderStops := row.point == fault.Help || row.point == fault.HelpCopied
	sender, sends := side("send", row.sends, senderStops)
	receiver, receives := side("receive", row.gets, !senderStops)
	sender.say(receives)
	receiver.say(sends)
	stopped, survivor = sender, receiver
	if !senderStops {
		stopped, survivor = receiver, sender
	}
	waitStopped(t, stopped)
	return stopped, survivor
}

func (row stopCopyRow) run(t *testing.T) {
	stopped, survivor := row.start(t)
	survivor.say("end it")
	var after time.Duration
	line := survivor.hear()
	_, err := fmt.Sscanf(line, "ended %d", &after)
	require.NoError(t, err, line)
	require.Contains(t, line, row.want.Error())
	require.Less(t, after, mostLate)
	stopped.signal(syscall.SIGCONT)
	line = stopped.hear()
	require.True(t, strings.HasPrefix(line, "went on: "), line)
	t.Logf("ended after %v; the other %s", after, line)
	survivor.say("compare")
	survivor.expect(fmt.Sprint("changed ", row.pieces))
	if row.how == "cancel" {
		for _, p := range []*process{stopped, survivor} {
			p.say("again")
		}
		for _, p := range []*process{stopped, survivor} {
			p.expect("did more")
		}
	}
}

// TestUnmappedCopy: one of two sides unmaps its buffer, or closes its registration, while the message is being copied.
// The requests end, with errors where the memory is gone, and both sides go on.
func TestUnmappedCopy(t *testing.T) {
	withinHost(t)
	faulty.Do(buildFaulty)
	require.NoError(t, faulty.err)
	for _, memory := range []string{"anonymous", "file", "mapped", "registered"} {
		for _, point := range []fault.Point{fault.Piece, fault.Help} {
			for _, peers := range []string{"heap", "mapped"} {
				t.Run(fmt.Sprintf("%s, %s and %s", point, memory, peers), func(t *testing.T) { unmapCopy(t, point, memory, peers) })
			}
		}
	}
}

// unmapCopy has the side at the point stop, and the other one unmap its memory.
func unmapCopy(t *testing.T, point fault.Point, memory, peers string) {
	kinds := map[bool]string{true: peers, false: memory} // by whether the side stops
	row := stopCopyRow{point: point, sends: kinds[point == fault.Help], gets: kinds[point == fault.Piece], how: "unmap"}
	stopped, survivor := row.start(t)
	survivor.say("end it")
	survivor.expect("unmapped")
	stopped.signal(syscall.SIGCONT)
	ended, goOn := survivor.hear(), []*process{survivor}
	t.Log(ended)
	if strings.Contains(ended, "<nil>") { // the other one goes on without a stop
		require.True(t, memory == "registered" || memory == "mapped" && point == fault.Help, "only the stopped one had pieces left, and maps the memory")
	} else {
		t.Log(stopped.hear())
		goOn = append(goOn, stopped)
	}
	for _, p := range goOn {
		p.say("again")
	}
	for _, p := range goOn {
		p.expect("did more")
	}
}

const copyPiece = 32 << 10 // what a side claims at a time

// roleCopier exchanges long messages until one does not succeed. Its lines:
//
//	received: "send" or "receive", a kind of memory, "cancel", "close" or "unmap"; sent: own address; received: the peer's address
//	received: "end it"; sent: "ended", after how long, and the errors
//	received, with "unmap": "end it"; sent: "unmapped", and when the request has ended, "ended", and the error
//	sent, if the peer did that: "went on:" with the error
//	received: "compare"; sent: "changed", and how many pieces of the buffer have changed since the request ended
//	received: "again"; sent: "did more", after some more messages
func roleCopier(p *parent) {
	var what, memory, how string
	check(scanLine(p.hear(), &what, &memory, &how))
	v := &side{parent: p, node: must(newNode(ucp.ThreadSingle, 2*time.Second))}
	unmap := func() {}
	switch memory {
	case "mapped":
		m := must(v.x.Allocate(big+2*canary, ucp.MemConfig{}))
		v.mapped, unmap = m.Bytes(), func() { check(m.Close()) }
	case "registered":
		v.mapped = make([]byte, big+2*canary)
		m := must(v.x.Register(v.mapped, ucp.MemConfig{}))
		unmap = func() { check(m.Close()) }
	case "anonymous":
		b := must(unix.Mmap(-1, 0, big+2*canary, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))
		v.mapped, unmap = b, func() { check(unix.Munmap(b)) }
	case "file": // that is truncated
		f := must(os.CreateTemp("", "goucx-test"))
		check(os.Remove(f.Name()))
		check(f.Truncate(big + 2*canary))
		v.mapped = must(unix.Mmap(int(f.Fd()), 0, big+2*canary, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
		unmap = func() { check(f.Truncate(0)) }
	}
	v.ctx = context.Background() // the test has the patience
	buf := v.buffer(big)
	p.say(v.address())
	v.e = must(v.connect(p.hear()))
	c := &copier{side: v, sends: what == "send", buf: buf}
	ended := false
	for err := error(nil); err == nil && !ended; {
		ended, err = c.message()
		switch {
		case ended && how == "cancel":
			began := time.Now()
			c.cancel()
			err := c.finish()
			took := time.Since(began)
			c.overwrite()
			p.say("ended", took.Nanoseconds(), err)
		case ended && how == "unmap":
			unmap()
			c.gone = true
			p.say("unmapped")
			err := c.finish()
			c.buf, v.buffers, c.gone = make([]byte, big), nil, false
			p.say("ended", err)
		case ended:
			began := time.Now()
			err := v.w.Close()
			took := time.Since(began)
			c.overwrite()
			p.say("ended", took.Nanoseconds(), c.finish(), "and", err)
		case err != nil:
			p.say("went on:", err)
		}
	}
	if ended && how != "unmap" {
		c.hears("compare", how == "cancel")
		v.untouched(false)
		changed := make(map[int]bool)
		for at := range buf {
			if buf[at] != canaryByte {
				changed[at/copyPiece] = true
			}
		}
		p.say("changed", len(changed))
	}
	c.hears("again", how != "close")
	for range 5 {
		_, err := c.message()
		check(err)
	}
	check(v.e.Flush().Wait(v.ctx))
	p.say("did more")
	c.hears("end", true)
}

// copier is a side with the request in progress.
type copier struct {
	*side
	sends bool
	buf   []byte
	n     uint64
	send  ucp.Request
	recv  ucp.RecvRequest
	gone  bool // the buffer is unmapped
}

// overwrite makes the buffer a canary: the request has ended.
func (c *copier) overwrite() {
	for i := range c.buf {
		c.buf[i] = canaryByte
	}
}

// hears waits for a line, and meanwhile progresses.
func (c *copier) hears(line string, progress bool) {
	for {
		if progress {
			c.nap(c.w.Progress())
		}
		switch s, ok := c.heard(); {
		case ok && s != line:
			check(fmt.Errorf("heard %q", s))
		case ok:
			return
		}
	}
}

// message exchanges a message. It returns true if the line "end it" was received.
func (c *copier) message() (end bool, err error) {
	done := func() bool { return c.recv.Done() }
	if c.sends {
		fill(c.buf, 1, c.n)
		c.n++
		c.send = c.e.TagSend(c.buf, tagStream)
		done = func() bool { return c.send.Done() }
	} else {
		clear(c.buf)
		c.recv = c.w.TagRecv(c.buf, tagStream, allBits)
	}
	for !done() {
		c.w.Progress()
		if s, ok := c.heard(); ok {
			if s != "end it" {
				check(fmt.Errorf("heard %q", s))
			}
			return true, nil
		}
	}
	return false, c.finish()
}

// cancel cancels the request.
func (c *copier) cancel() {
	if c.sends {
		c.send.Cancel()
	} else {
		c.recv.Cancel()
	}
}

// finish waits for the request, and checks what it has received.
func (c *copier) finish() error {
	if c.sends {
		return c.send.Wait(c.ctx)
	}
	m, err := c.recv.Wait(c.ctx)
	if err == nil && !c.gone {
		_, _, err := read(c.buf[:m.Len])
		check(err)
	}
	return err
}
