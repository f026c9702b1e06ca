package bootstrap

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The process of rank 0 has a connection to each other one; each other process has one to it. A
// message is its length, 4 bytes little-endian, and its bytes. The first message on a connection
// is the rank, 4 bytes.
type (
	root struct {
		conns []*conn // by rank; that of rank 0 is nil
	}
	leaf struct {
		size int
		conn *conn
	}
)

func meetTCP(ctx context.Context, addr string, rank, size int) (exchanger, error) {
	if rank == 0 {
		return gatherTCP(ctx, addr, size)
	}
	for {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			l := &leaf{size: size, conn: newConn(c)}
			return l, l.conn.send(ctx, binary.LittleEndian.AppendUint32(nil, uint32(rank)))
		}
		select { // rank 0 may not listen yet
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// gatherTCP listens until all processes have connected.
func gatherTCP(ctx context.Context, addr string, size int) (*root, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	r := &root{conns: make([]*conn, size)}
	for have := 1; have < size; {
		c, err := l.Accept()
		if err != nil {
			return nil, errors.Join(err, context.Cause(ctx), r.close())
		}
		if r.admit(ctx, newConn(c)) {
			have++
		} else {
			_ = c.Close()
		}
	}
	return r, nil
}

// admit accepts a connection if it sends an awaited rank in time. Any process may connect.
func (r *root) admit(ctx context.Context, c *conn) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	b, err := c.receive(ctx)
	if err != nil || len(b) != 4 {
		return false
	}
	rank := int(binary.LittleEndian.Uint32(b))
	if rank == 0 || rank >= len(r.conns) || r.conns[rank] != nil {
		return false
	}
	r.conns[rank] = c
	return true
}

func (r *root) allgather(ctx context.Context, mine []byte) ([][]byte, error) {
	all := make([][]byte, len(r.conns))
	all[0] = mine
	for rank, c := range r.conns[1:] {
		var err error
		if all[rank+1], err = c.receive(ctx); err != nil {
			return nil, fmt.Errorf("from rank %d: %w", rank+1, err)
		}
	}
	for rank, c := range r.conns[1:] {
		if err := c.send(ctx, all...); err != nil {
			return nil, fmt.Errorf("to rank %d: %w", rank+1, err)
		}
	}
	return all, nil
}

func (r *root) close() error {
	var errs []error
	for _, c := range r.conns {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

func (l *leaf) allgather(ctx context.Context, mine []byte) ([][]byte, error) {
	if err := l.conn.send(ctx, mine); err != nil {
		return nil, err
	}
	all := make([][]byte, l.size)
	for rank := range all {
		var err error
		if all[rank], err = l.conn.receive(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (l *leaf) close() error { return l.conn.Close() }

// conn sends and receives messages. The end of a context aborts its operations.
type conn struct {
	net.Conn
	in *bufio.Reader
}

func newConn(c net.Conn) *conn { return &conn{c, bufio.NewReader(c)} }

// bounded calls f, whose reads and writes fail as soon as ctx ends.
func (c *conn) bounded(ctx context.Context, f func() error) error {
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if err := f(); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

func (c *conn) send(ctx context.Context, messages ...[]byte) error {
	return c.bounded(ctx, func() error {
		var b []byte
		for _, m := range messages {
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(m))), m...)
		}
		_, err := c.Write(b)
		return err
	})
}

func (c *conn) receive(ctx context.Context) (message []byte, err error) {
	err = c.bounded(ctx, func() error {
		var head [4]byte
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n > maxContribution {
			return fmt.Errorf("a message of %d bytes", n)
		}
		message = make([]byte, n)
		_, err := io.ReadFull(c.in, message)
		return err
	})
	return message, err
}
