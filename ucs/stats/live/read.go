package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goucx/goucx/ucs"
)

// question is what a reader sends; who only looks whether anybody listens sends
// nothing.
const question = '?'

// maxPage bounds a page in bytes.
const maxPage = 64 << 20

// Found is a context that offers a page.
type Found struct {
	// PID is that of the program, as it sees itself.
	PID int
	// Path is that of the socket.
	Path string
}

// At is what offers at a path that somebody names; whether it does, Read finds
// out.
func At(path string) Found { return Found{pidOf(path), path} }

// List finds what is on offer in dir, by pid, and removes what crashed programs
// left there. A directory that does not exist holds nothing. For DefaultDir, List also
// reads the directories that Offer used instead of it.
func List(dir string) ([]Found, error) {
	var found []Found
	for _, dir := range places(dir) {
		sweep(dir)
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list programs: %w", err)
		}
		for _, e := range entries {
			if pid := pidOf(e.Name()); pid != 0 && e.Type()&fs.ModeSocket != 0 {
				found = append(found, Found{pid, filepath.Join(dir, e.Name())})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Found) int { return a.PID - b.PID })
	return found, nil
}

// sweep removes the sockets in dir at which nobody listens any more. What
// cannot be removed is another user's, and stays.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		name, hidden := strings.CutPrefix(e.Name(), ".")
		if pidOf(name) == 0 || e.Type()&fs.ModeSocket == 0 {
			continue
		}
		if hidden && !abandoned(e) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		c, err := net.Dial("unix", path)
		switch {
		case err == nil:
			_ = c.Close()
		case errors.Is(err, syscall.ECONNREFUSED):
			_ = os.Remove(path)
		}
	}
}

// beginning is the longest that an offer stays hidden, generously.
const beginning = time.Minute

// abandoned reports whether the file is older than any offer that begins.
func abandoned(e fs.DirEntry) bool {
	i, err := e.Info()
	return err == nil && time.Since(i.ModTime()) > beginning
}

// Read fetches the page at a socket, within limit.
//
// Errors: ucs.ErrTimeout where the program does not answer, since it is stopped
// or its processors are all taken; ucs.ErrInvalid for a page that is none, is of
// another version, or comes from another user.
func Read(path string, limit time.Duration) (*Page, error) {
	b, err := fetch(path, limit)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	p := new(Page)
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", path, ucs.ErrInvalid, err)
	}
	if p.Version != Version {
		return nil, fmt.Errorf("read %s: version %d, not %d: %w", path, p.Version, Version, ucs.ErrInvalid)
	}
	return p, nil
}

func noAnswer(limit time.Duration) error {
	return fmt.Errorf("no answer within %v: %w", limit, ucs.ErrTimeout)
}

func fetch(path string, limit time.Duration) ([]byte, error) {
	conn, err := net.DialTimeout("unix", path, limit)
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return nil, noAnswer(limit)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	c := conn.(*net.UnixConn)
	uid, err := peerUID(c)
	if err == nil && uid != os.Geteuid() {
		err = fmt.Errorf("user %d serves it: %w", uid, ucs.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	defer expire(c, limit)()
	if _, err := c.Write([]byte{question}); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(c, maxPage))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, noAnswer(limit)
	case err != nil:
		return nil, err
	case len(b) == 0:
		return nil, fmt.Errorf("it says nothing: %w", ucs.ErrInvalid)
	}
	return b, nil
}
