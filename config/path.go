package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// InstallDir is the system-wide directory of configuration files.
const InstallDir = "/etc/ucx"

// SearchPath returns the directories that are searched for configuration files, the lowest
// precedence first: InstallDir, ../etc/ucx beside the executable's directory, $HOME,
// $UCX_CONFIG_DIR and the current directory. A duplicate directory keeps its highest precedence.
// env is as in Options.Env.
//
// Source: ucs_config_parse_config_files of UCX, which uses the library's directory instead of the
// executable's.
func SearchPath(env []string) []string {
	dirs := []string{InstallDir}
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Join(filepath.Dir(exe), "..", "etc", "ucx"))
	}
	for _, name := range []string{"HOME", Prefix + configDirName} {
		if dir, ok := lookup(env, name); ok && dir != "" {
			if abs, err := filepath.Abs(dir); err == nil {
				dir = abs
			}
			dirs = append(dirs, dir)
		}
	}
	if cwd, err := os.Getwd(); err == nil {
		dirs = append(dirs, cwd)
	}
	return lastOnly(dirs)
}

func lastOnly(dirs []string) []string {
	var out []string
	for i, d := range dirs {
		if !slices.Contains(dirs[i+1:], d) {
			out = append(out, d)
		}
	}
	return out
}

// lookup returns the value of a variable in a list of NAME=value; the last one counts.
func lookup(env []string, name string) (string, bool) {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// checkConfigDir warns if UCX_CONFIG_DIR is not a directory: the files that the user expects are
// not read.
func (s *sources) checkConfigDir(env []string) {
	dir, ok := lookup(env, Prefix+configDirName)
	if !ok || dir == "" {
		return
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		s.warn("%s%s=%s is not a directory that can be read", Prefix, configDirName, dir)
	}
}
