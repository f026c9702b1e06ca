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

// RemoteError is a failure that the other side reported.
type RemoteError struct {
	Peer Identity
	Text string
}

// Error returns the text of the failure with the name of the other side.
func (e *RemoteError) Error() string {
	return fmt.Sprintf("the other side, %s, reports: %s", e.Peer, e.Text)
}

// Interrupted reports whether the other side was interrupted.
func (e *RemoteError) Interrupted() bool { return e.Text == interrupted }

// Conn is the control connection to the other process. It is used by one goroutine.
type Conn struct {
	c    *net.TCPConn
	raw  syscall.RawConn
	own  Identity
	peer Identity
	// settle bounds EndRun after a failure.
	settle time.Duration
	// server is set on the accepting side, index 1.
	server bool
	in     []byte // received, not parsed yet
	buf    [4096]byte
	seq    uint32 // number of the last barrier
	failed error  // the first error of the connection; sticky

	tryRead func(fd uintptr) bool // created once: a closure per poll would allocate
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

// Peer returns the identity of the other side.
func (c *Conn) Peer() Identity { return c.peer }

// LocalAddr returns the local address of the connection.
func (c *Conn) LocalAddr() netip.Addr {
	a, ok := netip.AddrFromSlice(c.c.LocalAddr().(*net.TCPAddr).IP)
	if !ok {
		return netip.Addr{}
	}
	return a.Unmap()
}

// Index returns 0 for the client and 1 for the server.
func (c *Conn) Index() int {
	if c.server {
		return 1
	}
	return 0
}

// Size returns 2.
func (c *Conn) Size() int { return 2 }

// linger bounds how long Close waits for the other side to read what was sent.
const linger = 200 * time.Millisecond

// Close ends the connection. Sent data, for example the reason of a failure, still arrives.
// Closing a connection with unread bytes would reset it and drop that data. So Close first drains
// the bytes, with a time limit.
func (c *Conn) Close() error {
	_ = c.c.CloseWrite()
	defer expire(c.c, linger)()
	_, _ = io.Copy(io.Discard, c.c)
	return c.c.Close()
}

// Remote returns the other side's network address.
func (c *Conn) Remote() net.Addr { return c.c.RemoteAddr() }

// Send sends a record of the caller's kind, with body encoded as JSON.
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
		return c.writeError(r.Type, err)
	}
	return nil
}

// writeError returns the reason that the other side sent before it closed the connection. If
// there is none, it returns the local write error.
func (c *Conn) writeError(kind string, err error) error {
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

// Receive waits for a record of the kind and decodes its body into v. Any other kind is an error.
// A failure of the other side is a *RemoteError.
func (c *Conn) Receive(kind string, v any) error {
	_, err := c.ReceiveAny(map[string]any{kind: v})
	return err
}

// ReceiveAny is Receive for several kinds, each with its own destination. It returns the received
// kind.
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

// Fail reports the local failure to the other side; best effort.
func (c *Conn) Fail(cause error) {
	defer expire(c.c, time.Second)()
	_ = c.Send(typeError, cause.Error())
}

// interrupted is the text of the RemoteError after Interrupt.
const interrupted = "interrupted"

// Interrupt reports to the other side that this one was interrupted and is going to exit; best effort.
// Any goroutine may call it while another one uses the connection.
func (c *Conn) Interrupt() {
	if b, err := appendRecord(nil, record{Type: typeError, Body: json.RawMessage(`"` + interrupted + `"`)}); err == nil {
		defer expire(c.c, time.Second)()
		_, _ = c.c.Write(b)
	}
}

// EndRun ends a run on both sides. It sends runErr, the local error of the run, unless that came
// from the other side. It then waits until the other side has ended the run too. It drops what the
// run left on the connection, so that the next run can begin, also after a failure.
//
// failure is runErr or, if that is nil, the error of the other side. If broken is not nil, the
// connection has failed and cannot be used for another run. After a failure the wait is limited to
// Config.Settle, because the other side may be stopped.
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
		case typeAddress, typeBarrier: // left from a run that this side has aborted
		default:
			return failure, fmt.Errorf("%s sent %q where the end of a run was due: %w", c.peer, r.Type, errRecord)
		}
	}
}

// Exchange swaps one blob, such as the packed addresses and keys, with the other side.
func (c *Conn) Exchange(own []byte) ([]byte, error) {
	if err := c.Send(typeAddress, own); err != nil {
		return nil, err
	}
	var peer []byte
	err := c.Receive(typeAddress, &peer)
	return peer, err
}

// checkEvery is how many times a barrier calls progress between checks of the connection. Each
// check is a system call that disturbs the measurement.
const checkEvery = 16

// Barrier returns when both sides have entered it. Meanwhile it calls progress repeatedly, or
// blocks if progress is nil.
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
		if spins%checkEvery == 0 {
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

// Err reports, without blocking, whether the other side is alive: nil, a *RemoteError or
// ErrPeerGone. It makes one system call.
func (c *Conn) Err() error {
	if c.failed == nil {
		c.fill(false)
	}
	for rest := c.in; ; { // a barrier may precede the reason
		r, n, err := parseRecord(rest)
		switch {
		case err != nil || n == 0:
			return c.failed
		case r.Type == typeError:
			return c.remoteError(r)
		}
		rest = rest[n:]
	}
}

// next returns the next record. Without wait it returns a zero record if none has arrived. The
// failure of the other side remains until EndRun.
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

// peek returns the next record and its length in the buffer. Without wait it returns a zero record
// if none has arrived.
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

// fill reads available bytes into in and reports whether it read any. It stores a connection error
// in failed.
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
