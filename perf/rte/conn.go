package rte

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"time"
)

// ErrPeerGone: the other side closed the control connection or died.
var ErrPeerGone = errors.New("the other side is gone")

// RemoteError is a failure that the other side reported before it gave up.
type RemoteError struct {
	Peer Hello
	Text string
}

// Error names the other side and gives its words.
func (e *RemoteError) Error() string {
	return fmt.Sprintf("the other side, %s, reports: %s", e.Peer, e.Text)
}

// Conn is the control connection of one process to the other. One goroutine
// uses it.
type Conn struct {
	c    *net.TCPConn
	raw  syscall.RawConn
	own  Hello
	peer Hello
	// settle bounds EndRun after a failure.
	settle time.Duration
	// server: the accepted side, index 1.
	server bool
	in     []byte // received, not yet parsed
	buf    [4096]byte
	seq    uint32 // of the last barrier
	failed error  // what broke the connection; sticky

	tryRead func(fd uintptr) bool // made once: a closure per poll would allocate
	n       int
	readErr error
}

func newConn(c *net.TCPConn, config Config, server bool) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("control connection: %w", err)
	}
	cn := &Conn{c: c, raw: raw, own: config.Own, settle: cmp.Or(config.Settle, settleTimeout), server: server}
	cn.tryRead = func(fd uintptr) bool {
		cn.n, cn.readErr = syscall.Read(int(fd), cn.buf[:])
		return true
	}
	return cn, nil
}

// Peer names the other side.
func (c *Conn) Peer() Hello { return c.peer }

// LocalAddr is this side's address of the connection.
func (c *Conn) LocalAddr() netip.Addr {
	a, ok := netip.AddrFromSlice(c.c.LocalAddr().(*net.TCPAddr).IP)
	if !ok {
		return netip.Addr{}
	}
	return a.Unmap()
}

// Index is 0 for the client and 1 for the server.
func (c *Conn) Index() int {
	if c.server {
		return 1
	}
	return 0
}

// Size is 2.
func (c *Conn) Size() int { return 2 }

// linger bounds how long Close waits for the other side to read what was sent.
const linger = 200 * time.Millisecond

// Close ends the connection. What was sent, a reason to fail for example, still
// arrives: closing with bytes unread would reset the connection and drop it, so
// these are drained first, bounded.
func (c *Conn) Close() error {
	_ = c.c.CloseWrite()
	defer expire(c.c, linger)()
	_, _ = io.Copy(io.Discard, c.c)
	return c.c.Close()
}

// Remote is the other side's network address.
func (c *Conn) Remote() net.Addr { return c.c.RemoteAddr() }

// Send sends a record of a kind of the caller's, with body as its JSON.
func (c *Conn) Send(kind string, body any) error {
	js, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	return c.send(record{Type: kind, Body: js})
}

func (c *Conn) send(r record) error {
	b, err := appendRecord(nil, r)
	if err != nil {
		return err
	}
	if _, err := c.c.Write(b); err != nil {
		return c.writeFailed(r.Type, err)
	}
	return nil
}

// writeFailed prefers the reason that the other side left behind before it
// hung up to the broken pipe that it became here.
func (c *Conn) writeFailed(kind string, err error) error {
	for {
		r, rerr := c.next(false)
		if remote := (*RemoteError)(nil); errors.As(rerr, &remote) {
			return rerr
		}
		if rerr != nil || r.Type == "" {
			return fmt.Errorf("send %s to %s: %w: %w", kind, c.peer, ErrPeerGone, err)
		}
	}
}

// Receive waits for a record of the kind and decodes its body into v. Any
// other kind is an error; the failure of the other side is a *RemoteError.
func (c *Conn) Receive(kind string, v any) error {
	_, err := c.ReceiveAny(map[string]any{kind: v})
	return err
}

// ReceiveAny is Receive for several kinds, each with its own destination; it
// gives the kind that came.
func (c *Conn) ReceiveAny(into map[string]any) (string, error) {
	r, err := c.next(true)
	if err != nil {
		return "", err
	}
	v, ok := into[r.Type]
	if !ok {
		return "", fmt.Errorf("%s sent %q out of turn: %w", c.peer, r.Type, errRecord)
	}
	if v == nil {
		return r.Type, nil
	}
	if err := json.Unmarshal(r.Body, v); err != nil {
		return "", fmt.Errorf("%s from %s: %w: %w", r.Type, c.peer, errRecord, err)
	}
	return r.Type, nil
}

// Fail tells the other side why this one gives up; best effort.
func (c *Conn) Fail(cause error) {
	defer expire(c.c, time.Second)()
	_ = c.Send(typeError, cause.Error())
}

// EndRun ends a run on both sides. It sends runErr, the error with which the run
// ended on this side, unless that is the other side's own, and waits until the
// other side has ended the run too. What the run left on the connection is
// dropped, so that the next run can begin, also after a failure.
//
// failure is runErr or, where that is nil, the error of the other side. With
// broken not nil the connection has failed and carries no other run. After a
// failure the other side has Config.Settle to end the run: it may be stopped.
func (c *Conn) EndRun(runErr error) (failure, broken error) {
	failure = runErr
	if runErr != nil {
		defer expire(c.c, c.settle)()
	}
	if _, remote := errors.AsType[*RemoteError](runErr); runErr != nil && !remote {
		if err := c.Send(typeError, runErr.Error()); err != nil {
			return failure, err
		}
	}
	if err := c.send(record{Type: typeDone}); err != nil {
		return failure, err
	}
	for {
		r, n, err := c.peek(true)
		if err != nil {
			if isTimeout(err) {
				err = fmt.Errorf("%w: %s has not ended the run within %v", ErrPeerGone, c.peer, c.settle)
			}
			return failure, err
		}
		c.drop(n)
		switch r.Type {
		case typeDone:
			c.seq = 0
			return failure, nil
		case typeError:
			if failure == nil {
				failure = c.remoteError(r)
			}
		case typeAddress, typeBarrier: // of a run that this side has given up
		default:
			return failure, fmt.Errorf("%s sent %q where the end of a run was due: %w", c.peer, r.Type, errRecord)
		}
	}
}

// Exchange swaps one blob, here the packed addresses and keys, with the other
// side.
func (c *Conn) Exchange(own []byte) ([]byte, error) {
	if err := c.Send(typeAddress, own); err != nil {
		return nil, err
	}
	var peer []byte
	err := c.Receive(typeAddress, &peer)
	return peer, err
}

// lookEvery is how many times a barrier calls progress between looks at the
// connection: each is a system call beside what is measured.
const lookEvery = 16

// Barrier returns when both sides have entered it. Meanwhile it calls progress
// over and over, or sleeps where progress is nil.
func (c *Conn) Barrier(progress func()) error {
	c.seq++
	if err := c.send(record{Type: typeBarrier, Seq: c.seq}); err != nil {
		return err
	}
	r, err := c.next(progress == nil)
	for spins := 1; err == nil && r.Type == ""; spins++ {
		progress()
		if spins&63 == 0 {
			runtime.Gosched()
		}
		if spins%lookEvery == 0 {
			r, err = c.next(false)
		}
	}
	if err != nil {
		return err
	}
	if r.Type != typeBarrier || r.Seq != c.seq {
		return fmt.Errorf("%s sent %q %d where barrier %d was due: %w", c.peer, r.Type, r.Seq, c.seq, errRecord)
	}
	return nil
}

// Err looks, without waiting, whether the other side is still there: nil, a
// *RemoteError or ErrPeerGone. One system call.
func (c *Conn) Err() error {
	if c.failed == nil {
		c.fill(false)
	}
	r, n, err := parseRecord(c.in)
	if err == nil && n > 0 && r.Type == typeError {
		return c.remoteError(r)
	}
	return c.failed
}

// next returns the next record; without wait a zero one where none has come. The
// failure of the other side stays until EndRun.
func (c *Conn) next(wait bool) (record, error) {
	r, n, err := c.peek(wait)
	if err != nil {
		return record{}, err
	}
	if r.Type == typeError {
		return record{}, c.remoteError(r)
	}
	c.drop(n)
	return r, nil
}

// peek returns the next record and its length in the buffer; without wait a zero
// one where none has come.
func (c *Conn) peek(wait bool) (record, int, error) {
	for {
		r, n, err := parseRecord(c.in)
		switch {
		case err != nil:
			return record{}, 0, fmt.Errorf("from %s: %w", c.peer, err)
		case n > 0:
			return r, n, nil
		case c.failed != nil:
			return record{}, 0, c.failed
		}
		if !c.fill(wait) {
			return record{}, 0, c.failed
		}
	}
}

// drop removes the first n bytes of the buffer.
func (c *Conn) drop(n int) { c.in = append(c.in[:0], c.in[n:]...) }

func (c *Conn) remoteError(r record) error {
	var text string
	if err := json.Unmarshal(r.Body, &text); err != nil {
		text = "an unreadable reason"
	}
	return &RemoteError{Peer: c.peer, Text: text}
}

// fill reads what there is into in and says whether it read something; what
// ends the connection is kept in failed.
func (c *Conn) fill(wait bool) bool {
	var n int
	var err error
	if wait {
		n, err = c.c.Read(c.buf[:])
	} else {
		if err = c.raw.Read(c.tryRead); err == nil {
			n, err = c.n, c.readErr
		}
		switch {
		case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR):
			return false
		case err == nil && n == 0:
			err = io.EOF
		}
	}
	if n > 0 {
		c.in = append(c.in, c.buf[:n]...)
		return true
	}
	c.failed = c.ended(err)
	return false
}

func (c *Conn) ended(err error) error {
	if isTimeout(err) {
		return err
	}
	where := ""
	if _, whole, perr := parseRecord(c.in); len(c.in) > 0 && whole == 0 && perr == nil {
		where = " in the middle of a record"
	}
	return fmt.Errorf("%w: %s ended%s (%w)", ErrPeerGone, c.peer, where, err)
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}
