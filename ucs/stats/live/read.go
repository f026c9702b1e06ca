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

// requestByte is the byte that a reader sends. A client that only checks for a listener sends
// nothing.
const requestByte = '?'

// maxPage bounds the size of a page, in bytes.
const maxPage = 64 << 20

// Program is a context that serves a page.
type Program struct {
	// PID is the program's process ID in its own namespace.
	PID int
	// Path is the path of the socket.
	Path string
}

// At returns the context at a path that the user has named. Read finds out whether there is
// one.
func At(path string) Program { return Program{pidOf(path), path} }

// List returns the contexts that serve a page in dir, by process ID. It removes the sockets
// of crashed programs. A missing directory is empty. For DefaultDir, List also reads the
// directories that Offer has used instead.
func List(dir string) ([]Program, error) {
	var found []Program
	for _, dir := range candidateDirs(dir) {
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
				found = append(found, Program{pid, filepath.Join(dir, e.Name())})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Program) int { return a.PID - b.PID })
	return found, nil
}

// sweep removes the sockets in dir without a listener. It skips those of other users, which
// it cannot remove.
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
		if i, err := e.Info(); hidden && (err != nil || time.Since(i.ModTime()) < maxHidden) {
			continue // a socket may still be hidden
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

// maxHidden is longer than a socket stays hidden.
const maxHidden = time.Minute

// Read fetches the page at a socket. It waits at most limit.
//
// Errors:
//   - ucs.ErrTimeout if the program is stopped or all processors are busy
//   - ucs.ErrInvalid if the page is malformed or of another version, or another user serves it
//   - otherwise the system's errors
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

func timeoutError(limit time.Duration) error {
	return fmt.Errorf("no answer within %v: %w", limit, ucs.ErrTimeout)
}

func fetch(path string, limit time.Duration) ([]byte, error) {
	conn, err := net.DialTimeout("unix", path, limit)
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return nil, timeoutError(limit)
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
	if _, err := c.Write([]byte{requestByte}); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(c, maxPage))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, timeoutError(limit)
	case err != nil:
		return nil, err
	case len(b) == 0:
		return nil, fmt.Errorf("empty reply: %w", ucs.ErrInvalid)
	}
	return b, nil
}
