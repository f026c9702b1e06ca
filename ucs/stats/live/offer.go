package live

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/goucx/goucx/ucs"
)

// maxPath is the longest path of a Unix socket in bytes.
const maxPath = 107

// readerLimit bounds how long a reader may take.
const readerLimit = 2 * time.Second

// Offering is a page on offer.
//
// Concurrency: Close from any goroutine.
type Offering struct {
	path string
	// instead is why it is not in the directory that was wanted; nil: it is.
	instead error
	listen  *net.UnixListener
	page    func() *Page
	one     sync.Mutex // one page is made at a time
	done    sync.WaitGroup
}

// Offer serves page, which a goroutine calls for each reader, one at a time,
// through a new socket in dir, which is made where it is not there. Only this
// user may read.
//
// Errors: ucs.ErrUnsupported where the system cannot tell who asks; the
// system's; ucs.ErrInvalid for a directory that belongs to another user, or that others
// may write to (instead of DefaultDir, another directory is used, which List finds);
// ucs.ErrTooLong for one whose name leaves no room.
func Offer(dir string, page func() *Page) (*Offering, error) {
	o := &Offering{page: page}
	if err := o.open(dir); err != nil {
		return nil, fmt.Errorf("offer counters in %s: %w", dir, err)
	}
	o.done.Go(o.serve)
	return o, nil
}

func (o *Offering) open(dir string) error {
	if !knowsPeers {
		return ucs.ErrUnsupported
	}
	dir, instead, err := place(dir)
	if err != nil {
		return err
	}
	o.instead = instead
	sweep(dir)
	name := fmt.Sprintf("%d-%s%s", os.Getpid(), randomName(), suffix)
	// Under a hidden name until it listens: what is visible and refuses is stale.
	hidden := filepath.Join(dir, "."+name)
	if len(hidden) > maxPath {
		return fmt.Errorf("the socket's path would have %d bytes, at most %d are possible: %w", len(hidden), maxPath, ucs.ErrTooLong)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	o.listen, o.path = l, filepath.Join(dir, name)
	err = os.Chmod(hidden, 0o600)
	if err == nil {
		err = os.Rename(hidden, o.path)
	}
	if err != nil {
		return errors.Join(err, l.Close(), os.Remove(hidden))
	}
	return nil
}

func randomName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails; see crypto/rand
	return hex.EncodeToString(b[:])
}

// expire lets reads and writes on c fail as timed out after d, until stopped.
func expire(c net.Conn, d time.Duration) (stop func()) {
	t := time.AfterFunc(d, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() { t.Stop() }
}

// Path is that of the socket.
func (o *Offering) Path() string { return o.path }

// Instead is why the socket is not in the directory that was wanted, which was
// DefaultDir; nil: it is there.
func (o *Offering) Instead() error { return o.instead }

// serve answers readers until Close.
func (o *Offering) serve() {
	for {
		c, err := o.listen.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors left, for example: a pause, or it would spin
			time.Sleep(100 * time.Millisecond)
			continue
		}
		o.done.Go(func() { o.answer(c) })
	}
}

func (o *Offering) answer(c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	if uid, err := peerUID(c); err != nil || uid != os.Geteuid() {
		return
	}
	defer expire(c, readerLimit)()
	var q [1]byte
	if n, err := c.Read(q[:]); n != 1 || err != nil || q[0] != question {
		return
	}
	o.one.Lock()
	b, err := json.Marshal(o.page())
	o.one.Unlock()
	if err != nil {
		return
	}
	_, _ = c.Write(b) // an error: the reader gave up
}

// Close takes the page back. Idempotent.
func (o *Offering) Close() error {
	err := o.listen.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	o.done.Wait()
	return errors.Join(err, os.Remove(o.path))
}
