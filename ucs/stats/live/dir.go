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

// Values of the setting that selects where to serve pages.
const (
	// Off disables the service.
	Off = ""
	// Unix selects DefaultDir.
	Unix = "unix"
	// UnixPrefix is the prefix of a value that names a directory.
	UnixPrefix = Unix + ":"
)

// suffix is the suffix of socket names, which begin with the process ID.
const suffix = ".ucx"

// DefaultDir returns the directory for the programs of this user on this machine. Anyone can
// create entries in its parent, so another user may have taken the name; see place.
func DefaultDir() string {
	return filepath.Join(os.TempDir(), "goucx-"+strconv.Itoa(os.Geteuid()))
}

// chooseDir creates or finds the directory to use for dir. If the default directory is not
// private to this user, place returns another directory and the reason.
//
// That directory has a random name, so no other user can create it first. Readers find it
// by its owner. The checks are not subject to a race: the parent is sticky, so only the
// owner of a directory can replace it.
func chooseDir(dir string) (at string, instead, err error) {
	if dir != DefaultDir() {
		return dir, nil, ensureDir(dir)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", nil, err
	}
	if instead = checkPrivate(dir); instead == nil {
		return dir, nil, nil
	}
	if others := fallbacks(); len(others) > 0 {
		return others[0], instead, nil
	}
	at, err = os.MkdirTemp(filepath.Split(dir + "-*"))
	return at, instead, err
}

// candidateDirs returns the directories that place may have returned for dir.
func candidateDirs(dir string) []string {
	if dir != DefaultDir() {
		return []string{dir}
	}
	dirs := fallbacks()
	if checkPrivate(dir) == nil {
		dirs = append(dirs, dir)
	}
	return dirs
}

// fallbacks returns this user's directories that place created instead of DefaultDir.
func fallbacks() []string {
	dirs, _ := filepath.Glob(DefaultDir() + "-*") // the pattern is valid
	return slices.DeleteFunc(dirs, func(dir string) bool { return checkPrivate(dir) != nil })
}

// checkPrivate returns an error unless dir is a directory that only this user may enter. It does
// not follow a symbolic link, which another user may have created.
func checkPrivate(dir string) error {
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

// ensureDir creates dir, which the user has configured, with mode 0700. It accepts an
// existing directory if other users cannot replace its entries.
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

// owner returns the user ID of a file's owner, or -1 if it is not known.
func owner(i os.FileInfo) int {
	if st, ok := i.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// Dir returns the directory that a value of the setting selects, or "" for Off.
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

// CheckDestination returns an error for a value that Dir does not support.
func CheckDestination(s string) error {
	if s == Off || s == Unix || len(s) > len(UnixPrefix) && strings.HasPrefix(s, UnixPrefix) {
		return nil
	}
	return fmt.Errorf("not empty, %s or %sDIRECTORY", Unix, UnixPrefix)
}

// pidOf returns the process ID in a socket's name, or 0 if it is not a name of this package.
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
