package live

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/goucx/goucx/ucs"
)

// Destinations of the setting that says where to offer.
const (
	// Off offers nothing.
	Off = ""
	// Unix offers in DefaultDir.
	Unix = "unix"
	// UnixPrefix stands before a directory.
	UnixPrefix = Unix + ":"
)

// suffix ends the names of sockets; a name begins with the pid.
const suffix = ".ucx"

// DefaultDir is the directory of this user's programs on this machine. Its parent is open
// to everybody, so its name may be taken: see place.
func DefaultDir() string {
	return filepath.Join(os.TempDir(), "goucx-"+strconv.Itoa(os.Geteuid()))
}

// place makes or finds the directory that serves as dir. If the default directory is not
// private to this user, place returns the reason and another directory. That one has a
// random name, so nobody can create it first; readers find it by its owner. No check can
// be outrun: the parent is sticky, so only its owner can replace a directory.
func place(dir string) (at string, instead, err error) {
	if dir != DefaultDir() {
		return dir, nil, ensureDir(dir)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", nil, err
	}
	if instead = private(dir); instead == nil {
		return dir, nil, nil
	}
	if others := fallbacks(); len(others) > 0 {
		return others[0], instead, nil
	}
	at, err = os.MkdirTemp(filepath.Split(dir + "-*"))
	return at, instead, err
}

// places lists the directories that place may have returned for dir.
func places(dir string) []string {
	if dir != DefaultDir() {
		return []string{dir}
	}
	dirs := fallbacks()
	if private(dir) == nil {
		dirs = append(dirs, dir)
	}
	return dirs
}

// fallbacks lists the directories of this user that place made instead of the default one.
func fallbacks() []string {
	dirs, _ := filepath.Glob(DefaultDir() + "-*") // the pattern is right
	return slices.DeleteFunc(dirs, func(dir string) bool { return private(dir) != nil })
}

// private returns an error unless dir is a directory that only this user may enter. It
// does not follow a link, which another user may have planted.
func private(dir string) error {
	i, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !i.IsDir() {
		return fmt.Errorf("%s is no directory (mode %v): %w", dir, i.Mode(), ucs.ErrInvalid)
	}
	if uid := owner(i); uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not %d: %w", dir, uid, os.Geteuid(), ucs.ErrInvalid)
	}
	if m := i.Mode(); m.Perm()&0o077 != 0 {
		return fmt.Errorf("%s is open to others (mode %v): %w", dir, m, ucs.ErrInvalid)
	}
	return nil
}

// ensureDir makes dir, which the user named, with mode 0700. It accepts an existing one
// whose entries other users cannot replace.
func ensureDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	i, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if uid := owner(i); uid != os.Geteuid() && uid != 0 {
		return fmt.Errorf("it belongs to user %d, not %d: %w", uid, os.Geteuid(), ucs.ErrInvalid)
	}
	if m := i.Mode(); m.Perm()&0o022 != 0 && m&os.ModeSticky == 0 {
		return fmt.Errorf("others may write to it (mode %v): %w", m, ucs.ErrInvalid)
	}
	return nil
}

// owner is the user that a file belongs to; -1: not known.
func owner(i os.FileInfo) int {
	if st, ok := i.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// Dir gives the directory of a destination, "" for Off.
func Dir(destination string) string {
	switch dir, found := strings.CutPrefix(destination, UnixPrefix); {
	case found:
		return dir
	case destination == Unix:
		return DefaultDir()
	default:
		return ""
	}
}

// CheckDestination finds what Dir would not understand.
func CheckDestination(s string) error {
	if s == Off || s == Unix || len(s) > len(UnixPrefix) && strings.HasPrefix(s, UnixPrefix) {
		return nil
	}
	return fmt.Errorf("not empty, %s or %sDIRECTORY", Unix, UnixPrefix)
}

// pidOf reads the pid from a socket's name; 0: it is no socket of ours.
func pidOf(name string) int {
	base, ok := strings.CutSuffix(filepath.Base(name), suffix)
	if !ok {
		return 0
	}
	text, _, _ := strings.Cut(base, "-")
	pid, err := strconv.Atoi(text)
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
