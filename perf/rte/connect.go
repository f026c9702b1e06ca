package rte

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"
)

// DefaultPort is UCX's default port.
const DefaultPort = 13337

// greetTimeout bounds the exchange of greetings after the connection is established.
const greetTimeout = 5 * time.Second

// settleTimeout allows the other side to detect the failure and to close its transports.
const settleTimeout = 10 * time.Second

// retryEvery is the interval at which a client retries to connect to an absent server.
const retryEvery = 50 * time.Millisecond

// Config holds the parameters of the connection. The zero value uses UCX's port on any address.
type Config struct {
	// Port to listen on or to connect to; 0: DefaultPort.
	Port int
	// IPv6 restricts the connection to IPv6.
	IPv6 bool
	// Timeout bounds how long Dial waits for the server to start; 0: 5 s. The server waits for its
	// client without limit.
	Timeout time.Duration
	// Own identifies this side to the other.
	Own Identity
	// Greet bounds the exchange of greetings; 0: 5 s.
	Greet time.Duration
	// Settle bounds the wait for the other side to end a run that has failed on this side; 0: 10
	// s.
	Settle time.Duration
}

func (c Config) network() string {
	if c.IPv6 {
		return "tcp6"
	}
	return "tcp"
}

func (c Config) port() string {
	if c.Port == 0 {
		return strconv.Itoa(DefaultPort)
	}
	return strconv.Itoa(c.Port)
}

// Listener waits for one client.
type Listener struct {
	l *net.TCPListener
	c Config
	// serving is the client that Accept has returned.
	serving atomic.Pointer[Identity]
}

// Listen opens the server's port.
func Listen(c Config) (*Listener, error) {
	addr, err := net.ResolveTCPAddr(c.network(), ":"+c.port())
	if err != nil {
		return nil, fmt.Errorf("port %s: %w", c.port(), err)
	}
	return listen(c, addr)
}

// ListenLocal opens a free port for a client on this host.
func ListenLocal(c Config) (*Listener, error) {
	return listen(c, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
}

func listen(c Config, addr *net.TCPAddr) (*Listener, error) {
	l, err := net.ListenTCP(c.network(), addr)
	if err != nil {
		return nil, fmt.Errorf("listen on port %d: %w", addr.Port, rootCause(err))
	}
	return &Listener{l: l, c: c}, nil
}

// Addr returns the listener's address.
func (l *Listener) Addr() net.Addr { return l.l.Addr() }

// Close closes the port.
func (l *Listener) Close() error { return l.l.Close() }

// maxGreetings bounds the connections that exchange greetings at once. Others wait in the backlog
// of the port, at most for one greeting time-out.
const maxGreetings = 16

// Accept waits for a client and exchanges greetings with it, so that both sides know each other.
// Until Close every other client gets the error that the server serves this one.
//
// A connection that stays silent, closes, or uses another protocol is closed and reported to
// onRefused, and Accept continues to wait. Greetings are exchanged concurrently, so that a silent
// connection does not delay the client. UCX's own tool, and another version of this one, end
// Accept with an error: the client has connected and cannot be served.
func (l *Listener) Accept(onRefused func(error)) (*Conn, error) {
	type greeted struct {
		c   *Conn
		err error
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // closes the connections whose greeting is incomplete
	results, slots := make(chan greeted), make(chan struct{}, maxGreetings)
	tell := func(g greeted) bool {
		select {
		case results <- g:
			return true
		case <-ctx.Done():
			return false
		}
	}
	greet := func(t *net.TCPConn) {
		defer func() { <-slots }()
		stop := context.AfterFunc(ctx, func() { _ = t.Close() })
		c, err := newConn(t, l.c, true)
		if err == nil {
			if err = c.greet(l.c.Greet); err != nil {
				_ = c.Close()
			}
		}
		if err != nil {
			_ = t.Close()
			err = fmt.Errorf("client at %s: %w", t.RemoteAddr(), err)
		}
		if stop() && !tell(greeted{c, err}) {
			_ = t.Close()
		}
	}
	go func() {
		for {
			slots <- struct{}{}
			t, err := l.l.AcceptTCP()
			if err != nil {
				tell(greeted{nil, fmt.Errorf("accept on %s: %w", l.l.Addr(), rootCause(err))})
				return
			}
			if client := l.serving.Load(); client != nil {
				refuse(t, *client)
				<-slots
				continue
			}
			go greet(t)
		}
	}()
	for {
		switch g := <-results; {
		case g.err == nil:
			l.serving.Store(&g.c.peer)
			return g.c, nil
		case g.c == nil, errors.Is(g.err, ErrUCX), errors.Is(g.err, ErrVersion):
			_ = l.l.Close()
			return nil, g.err
		default:
			onRefused(g.err)
		}
	}
}

// refuse replies to a client that the server serves another one.
func refuse(t *net.TCPConn, client Identity) {
	defer func() { _ = t.Close() }()
	defer expire(t, linger)()
	js, err := json.Marshal("it serves another client, " + client.String())
	if err != nil {
		return
	}
	b, err := appendRecord(appendGreeting(nil), record{Type: typeError, Body: js})
	if err != nil {
		return
	}
	if _, err := t.Write(b); err == nil && t.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, t)
	}
}

// busyRetry is the interval at which a client asks a server that serves another one.
const busyRetry = 500 * time.Millisecond

// Dial connects to the server on host and exchanges greetings with it. It retries until the server
// accepts or the time-out has passed, also one that serves another client.
func Dial(ctx context.Context, host string, c Config) (*Conn, error) {
	where := net.JoinHostPort(host, c.port())
	patient, cancel := context.WithTimeout(ctx, c.wait())
	defer cancel()
	for {
		t, err := connect(ctx, where, c)
		if err != nil {
			return nil, err
		}
		cn, err := newConn(t, c, false)
		if err == nil {
			err = cn.greet(c.Greet)
		}
		if err == nil {
			return cn, nil
		}
		if cn != nil {
			_ = cn.Close()
		}
		_ = t.Close()
		if busy, ok := errors.AsType[*RemoteError](err); ok {
			err = errors.New(busy.Text)
			select {
			case <-time.After(busyRetry):
				continue
			case <-patient.Done():
			}
		}
		return nil, fmt.Errorf("server at %s: %w", where, err)
	}
}

// wait returns how long a client waits for its server.
func (c Config) wait() time.Duration { return cmp.Or(c.Timeout, 5*time.Second) }

func connect(ctx context.Context, where string, c Config) (*net.TCPConn, error) {
	wait := c.wait()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for last := error(nil); ; {
		conn, err := (&net.Dialer{}).DialContext(ctx, c.network(), where)
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
		_, unknown := errors.AsType[*net.DNSError](err)
		_, otherFamily := errors.AsType[*net.AddrError](err)
		if (unknown || otherFamily) && ctx.Err() == nil {
			return nil, fmt.Errorf("connect to %s: %w", where, err)
		}
		if ctx.Err() == nil || last == nil {
			last = rootCause(err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to %s: no server came within %v: %w", where, wait, last)
		case <-time.After(retryEvery):
		}
	}
}

// greet sends the local greeting and checks the remote one. Both sides send at once, so neither
// waits for a party that does not send first.
func (c *Conn) greet(limit time.Duration) error {
	if limit == 0 {
		limit = greetTimeout
	}
	stop := expire(c.c, limit)
	defer stop()
	js, err := json.Marshal(c.own)
	if err != nil {
		return fmt.Errorf("encode greeting: %w", err)
	}
	b, err := appendRecord(appendGreeting(nil), record{Type: typeHello, Body: js})
	if err != nil {
		return err
	}
	if _, err := c.c.Write(b); err != nil {
		return fmt.Errorf("greet: %w", rootCause(err))
	}
	if err := c.readGreeting(); err != nil {
		if isTimeout(err) {
			return c.silenceError(limit)
		}
		if errors.Is(err, ErrVersion) {
			c.Fail(err) // the other side may see nothing wrong
		}
		return err
	}
	if err := c.Receive(typeHello, &c.peer); err != nil {
		if isTimeout(err) {
			return c.silenceError(limit)
		}
		return err
	}
	return nil
}

// silenceError returns the error for a side that accepts the connection and sends nothing. UCX's server
// does so: it waits for a parameter block that is longer than the greeting.
func (c *Conn) silenceError(limit time.Duration) error {
	if !c.server && len(c.in) == 0 {
		return fmt.Errorf("took the connection and said nothing for %v, as UCX's server does: %w", limit, ErrUCX)
	}
	return fmt.Errorf("said nothing for %v: %w", limit, ErrForeign)
}

// readGreeting checks the magic before it waits for the version: another program may send no more
// than eight bytes.
func (c *Conn) readGreeting() error {
	var b [greetingBytes]byte
	for _, part := range []struct {
		from, to int
		check    func([]byte) error
	}{{0, len(magic), checkMagic}, {len(magic), greetingBytes, checkVersion}} {
		if _, err := io.ReadFull(c.c, b[part.from:part.to]); err != nil {
			if isTimeout(err) {
				return err
			}
			return fmt.Errorf("%w: it hung up during the greeting (%w)", ErrPeerGone, rootCause(err))
		}
		if err := part.check(b[:]); err != nil {
			return err
		}
	}
	return nil
}

// expire makes reads and writes on c time out after d, until stop is called.
func expire(c net.Conn, d time.Duration) (stop func()) {
	t := time.AfterFunc(d, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() { t.Stop() }
}

// rootCause removes the addresses that package net adds to each error; the caller adds the
// relevant one.
func rootCause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return err
}
