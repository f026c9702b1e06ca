package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Errors that end a run.
var (
	errClosed = errors.New("the peer closed its connection")
	errLimit  = errors.New("the limit of the run has passed")
)

// maxPending bounds what the peer may send ahead: 256 addresses of ibv_srq_pingpong, and more.
const maxPending = 1 << 16

// control is the TCP connection of a run. A goroutine reads it all the time, so that the end of
// the connection is noticed while data are transferred.
type control struct {
	conn     net.Conn
	client   bool // it sends first
	deadline ucs.Time
	// poll makes progress while a message is awaited; nil: recv sleeps.
	poll func() error

	arrived chan struct{} // holds a value after each change of the fields below
	mu      sync.Mutex
	pending []byte // received and not consumed
	err     error  // why nothing more will arrive
}

// newControl returns the control of an open connection. It closes when the run does.
func newControl(conn net.Conn, client bool, deadline ucs.Time) *control {
	c := &control{conn: conn, client: client, deadline: deadline, arrived: make(chan struct{}, 1)}
	go c.read()
	return c
}

// read stores what arrives until the connection ends.
func (c *control) read() {
	b := make([]byte, 4096)
	for {
		n, err := c.conn.Read(b)
		c.mu.Lock()
		c.pending = append(c.pending, b[:n]...)
		switch {
		case err == nil && len(c.pending) > maxPending:
			err = fmt.Errorf("the peer sent %d bytes that the protocol does not have: %w", len(c.pending), errMessage)
		case errors.Is(err, io.EOF):
			err = errClosed
		case errors.Is(err, net.ErrClosed): // by this side
			err = errLimit
		case err != nil:
			err = fmt.Errorf("%w: %w", errClosed, err)
		}
		c.err = err
		c.mu.Unlock()
		select {
		case c.arrived <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// ended returns why nothing more will arrive, or nil.
func (c *control) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// take moves len(b) bytes to b. It returns false if they are not there yet.
func (c *control) take(b []byte) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) >= len(b) {
		copy(b, c.pending)
		c.pending = c.pending[len(b):]
		return true, nil
	}
	if c.err != nil {
		return false, fmt.Errorf("after %d of %d bytes: %w", len(c.pending), len(b), c.err)
	}
	return false, nil
}

// recv waits for len(b) bytes. what names them in errors.
func (c *control) recv(b []byte, what string) error {
	for {
		ok, err := c.take(b)
		if err == nil && !ok {
			err = c.wait()
		}
		if err != nil {
			return fmt.Errorf("receive %s: %w", what, err)
		}
		if ok {
			return nil
		}
	}
}

// wait returns when something may have arrived.
func (c *control) wait() error {
	left := c.deadline.Sub(ucs.Now())
	if left <= 0 {
		return errLimit
	}
	if c.poll != nil {
		return c.poll()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-c.arrived:
	case <-timer.C:
	}
	return nil
}

// send sends a message in one piece, as the programs read it by one call.
func (c *control) send(b []byte, what string) error {
	if left := c.deadline.Sub(ucs.Now()); left <= 0 {
		return fmt.Errorf("send %s: %w", what, errLimit)
	}
	if _, err := c.conn.Write(b); err != nil {
		return fmt.Errorf("send %s: %w: %w", what, errClosed, err)
	}
	return nil
}

// exchange sends local and receives into remote, of the same length. The client sends first.
func (c *control) exchange(local, remote []byte, what string) error {
	if c.client {
		if err := c.send(local, what); err != nil {
			return err
		}
		return c.recv(remote, what)
	}
	if err := c.recv(remote, what); err != nil {
		return err
	}
	return c.send(local, what)
}

// exchangeInt exchanges a number and returns the larger of both.
func (c *control) exchangeInt(local, most int, what string) (int, error) {
	var a, b [intSize]byte
	binary.BigEndian.PutUint32(a[:], uint32(local))
	if err := c.exchange(a[:], b[:], what); err != nil {
		return 0, err
	}
	remote := binary.BigEndian.Uint32(b[:])
	if remote == 0 || remote > uint32(most) {
		return 0, fmt.Errorf("%s %d, want 1 to %d: %w", what, remote, most, errMessage)
	}
	return max(local, int(remote)), nil
}

// lingerTime is how long close waits for the end of the peer.
const lingerTime = 2 * time.Second

// close ends a connection of perftest: it sends the end, unless the program sends none, and waits
// for that of the peer. Closing with unread data would reset the connection, and the peer could lose
// the last message. poll serves the device meanwhile, whose last acknowledgement may be lost.
func (c *control) close(end string) error {
	var err error
	if end != "" {
		err = c.send([]byte(end), "end")
	}
	c.deadline = min(c.deadline, ucs.Now().Add(lingerTime))
	for b := make([]byte, len(done)); ; {
		if ok, gone := c.take(b); ok || gone != nil || c.wait() != nil {
			break
		}
	}
	return errors.Join(err, c.conn.Close())
}
