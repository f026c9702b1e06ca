package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// confName is UCX's configuration file. goucx's own files are read after it, so that they take
// precedence within a directory.
const confName = "ucx.conf"

var ownNames = [...]string{"goucx.yaml", "goucx.yml", "goucx.toml", "goucx.json"}

// readDir reads the configuration files of one directory. A missing file is ignored, an unreadable
// file is a warning, and a malformed file is an error.
func (s *sources) readDir(dir string, host func() Host) {
	if _, err := os.Stat(dir + "/."); errors.Is(err, fs.ErrPermission) {
		s.warn("%s is not searched for configuration files: %v", dir, err)
		return
	}
	if text, ok := s.readFile(filepath.Join(dir, confName)); ok {
		s.readConf(filepath.Join(dir, confName), text, host)
	}
	var found string
	for _, name := range ownNames {
		path := filepath.Join(dir, name)
		text, ok := s.readFile(path)
		switch {
		case !ok:
		case found != "":
			s.fail(fmt.Errorf("%s and %s: one directory may hold one of them", found, path))
			return
		default:
			found = path
			entries, err := readTree(path, text)
			s.fail(err)
			s.entries = append(s.entries, entries...)
		}
	}
}

// maxFile is the maximum size of a configuration file in bytes.
const maxFile = 1 << 20

func (s *sources) readFile(path string) ([]byte, bool) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return nil, false
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("not a regular file")
	case err == nil && info.Size() > maxFile:
		err = fmt.Errorf("%d bytes: too large for a configuration file", info.Size())
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if errors.Is(err, fs.ErrPermission) {
		s.warn("%s is not read: %v", path, err)
		return nil, false
	}
	if err != nil {
		s.fail(fmt.Errorf("read %s: %w", path, err))
		return nil, false
	}
	return text, true
}

// extension returns "yaml", "toml" or "json".
func extension(path string) string {
	return strings.TrimPrefix(filepath.Ext(path), ".")
}
