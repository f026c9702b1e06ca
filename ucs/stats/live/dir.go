package live

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// DefaultDir is the directory of this user's programs on this machine.
func DefaultDir() string {
	return filepath.Join(os.TempDir(), "goucx-"+strconv.Itoa(os.Getuid()))
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
