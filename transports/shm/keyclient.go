package shm

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// requestTimeout is the maximum time for an owner's reply. It covers an owner that is stopped
// for a moment or gets no processor.
const requestTimeout = 5 * time.Second

// maxDialBackoff is the maximum interval between dials while the owner's backlog is full.
const maxDialBackoff = time.Millisecond

// keyGrant is an owner's reply: the connection, and the descriptors that came with it.
// The holder closes the descriptors; -1 means none.
type keyGrant struct {
	conn          *shmem.Conn
	pid           int // process id of the owner; 0: not visible in this pid namespace
	table, region int
}

// close releases what is left of a grant.
func (g *keyGrant) close() {
	for _, fd := range []int{g.table, g.region} {
		if fd >= 0 {
			shmem.CloseFDs(fd)
		}
	}
	if g.conn != nil {
		_ = g.conn.Close() // cannot fail: no unsent data
	}
	*g = keyGrant{table: -1, region: -1}
}

// requestGrant requests the descriptors of region p from its owner. It blocks for at most
// limit.
func requestGrant(p *mapped.PackedKey, wantTable bool, limit time.Duration) (keyGrant, error) {
	g := keyGrant{table: -1, region: -1}
	if err := g.request(p, wantTable, ucs.Now().Add(limit)); err != nil {
		g.close()
		return g, fmt.Errorf("request to its key server %q: %w", p.Socket, err)
	}
	return g, nil
}

// request dials the owner, sends the request and waits for the reply.
func (g *keyGrant) request(p *mapped.PackedKey, wantTable bool, until ucs.Time) error {
	if p.Socket == "" {
		return fmt.Errorf("the key is valid in its own domain only: %w", ucs.ErrUnreachable)
	}
	var err error
	if g.conn, err = dialOwner(p.Socket, until); err != nil {
		return err
	}
	if err := sameUser(g.conn); err != nil {
		return err
	}
	peer, err := g.conn.Peer()
	if err != nil {
		return err
	}
	g.pid = peer.PID
	a := keyRequest{wantTable: wantTable, domain: p.Domain, slot: p.Slot, gen: p.Gen}
	if err := g.conn.Send(a.append(nil)); err != nil {
		return hangUpError(err)
	}
	var buf [maxReply + 1]byte
	n, fds, err := recvUntil(g.conn, buf[:], until)
	if err != nil {
		return err
	}

	// Check the reply. The grant owns the descriptors of a valid one.
	var r keyReply
	err = r.parse(buf[:n])
	want := 0
	if r.status == keyOK {
		if wantTable {
			want++
		}
		if p.Kind == mapped.Allocated {
			want++
		}
	}
	switch {
	case err != nil:
	case len(fds) != want:
		err = fmt.Errorf("%w: %d descriptors, want %d", errReply, len(fds), want)
	case r.status != keyOK:
		err = keyStatusErrs[r.status]
	case r.region != *p:
		err = fmt.Errorf("the region is %v: %w", &r.region, ucs.ErrRemoteAccess)
	}
	if err != nil {
		shmem.CloseFDs(fds...)
		return err
	}
	if wantTable {
		g.table, fds = fds[0], fds[1:]
	}
	if len(fds) > 0 {
		g.region = fds[0]
	}
	return nil
}

// dialOwner dials until the owner's backlog has room, at most until the given time.
func dialOwner(name string, until ucs.Time) (*shmem.Conn, error) {
	for backoff := 100 * time.Microsecond; ; backoff = min(2*backoff, maxDialBackoff) {
		c, err := shmem.Dial(name)
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
			return nil, fmt.Errorf("no listener: the owner closed its domain or ended, or is in another network namespace (then set UCX_SHM_SOCKET_DIR to a shared directory): %w (%w)", ucs.ErrUnreachable, err)
		case !errors.Is(err, shmem.ErrWouldBlock):
			return nil, err
		case !ucs.Now().Before(until):
			return nil, errNoReply
		}
		time.Sleep(backoff)
	}
}

var errNoReply = fmt.Errorf("no answer within %v: the owner is stopped, or its key server gets no processor: %w", requestTimeout, ucs.ErrTimeout)

// hangUpError returns the error of a connection that the owner closed.
func hangUpError(err error) error {
	return fmt.Errorf("the owner hung up (it ended, or refuses more connections): %w (%w)", ucs.ErrPeerFailed, err)
}

// recvUntil waits for one message, at most until the given time.
func recvUntil(c *shmem.Conn, b []byte, until ucs.Time) (int, []int, error) {
	ep, err := shmem.NewEpoll()
	if err != nil {
		return 0, nil, err
	}
	defer ep.Close() //nolint:errcheck // closes a descriptor of this function
	if err := ep.Add(c.FD(), 0, shmem.EventIn); err != nil {
		return 0, nil, err
	}
	for {
		n, fds, err := c.Recv(b)
		switch {
		case err == nil:
			return n, fds, nil
		case !errors.Is(err, shmem.ErrWouldBlock):
			return 0, nil, hangUpError(err)
		}
		left := until.Sub(ucs.Now())
		if left <= 0 {
			return 0, nil, errNoReply
		}
		var events [1]shmem.Event
		if _, err := ep.Wait(events[:], int(left/time.Millisecond)+1); err != nil {
			return 0, nil, err
		}
	}
}
