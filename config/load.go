package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Options holds the sources for Load. The zero value selects the process's environment and the
// files on its search path.
type Options struct {
	// Env is a list of NAME=value in the form of os.Environ; nil: os.Environ(). HOME and
	// UCX_CONFIG_DIR for the search path are taken from it too.
	Env []string
	// Dirs are the directories that are searched for configuration files; later ones take
	// precedence. nil: SearchPath. An empty slice: no files.
	Dirs []string
	// Flags are a command's settings by name, in any case and with - for _: {"tls": "shm"} has the
	// origin "--tls".
	Flags map[string]string
	// Strict makes unknown names an error, as the setting STRICT does.
	Strict bool
	// Host is matched against the filtered sections of ucx.conf; nil: this machine, read when the
	// first such section is found.
	Host *Host
}

// Warning is a problem in the sources that does not invalidate the settings. The caller logs it.
type Warning struct {
	Text string
	Info bool // log at info level, not as a warning
}

// String returns the text.
func (w Warning) String() string { return w.Text }

// Load merges the sources over the tables and this package's own rows.
//
// Errors: all errors of all sources, joined, and a nil Set. The error of a value names its
// setting, its origin and the allowed values. The warnings are valid in either case.
func Load(o Options, tables ...Table) (*Set, []Warning, error) {
	s, err := newSet(append([]Table{ownTable()}, tables...))
	if err != nil {
		return nil, nil, err
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	src := gather(o)
	flags, err := s.flagEntries(o.Flags)
	src.fail(err)
	src.entries = append(src.entries, flags...)
	for _, e := range src.entries {
		s.entries[e.name] = e
	}
	src.fail(s.resolve())
	s.checkNames(&src, o.Strict)
	if err := errors.Join(src.errs...); err != nil {
		return nil, src.warnings, err
	}
	return s, src.warnings, nil
}

// sources holds the entries of files, environment and flags, the lowest precedence first.
type sources struct {
	entries  []entry
	warnings []Warning
	errs     []error
}

func (s *sources) fail(err error) {
	if err != nil {
		s.errs = append(s.errs, err)
	}
}

func (s *sources) warn(format string, args ...any) {
	s.warnings = append(s.warnings, Warning{Text: fmt.Sprintf(format, args...)})
}

func gather(o Options) sources {
	var src sources
	dirs := o.Dirs
	if dirs == nil {
		dirs = SearchPath(o.Env)
		src.checkConfigDir(o.Env)
	}
	host := localHost
	if o.Host != nil {
		host = func() Host { return *o.Host }
	}
	for _, dir := range dirs {
		src.readDir(dir, host)
	}
	src.readEnv(o.Env)
	return src
}

// readEnv reads the UCX_ variables. Of duplicate names the last one counts, as in os/exec.
func (s *sources) readEnv(env []string) {
	byName := map[string]string{}
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(k, Prefix) {
			byName[k] = v
		}
	}
	for _, k := range slices.Sorted(maps.Keys(byName)) {
		s.entries = append(s.entries, entry{
			name: strings.TrimPrefix(k, Prefix), text: byName[k], origin: Origin{Env, k},
		})
	}
}

// flagEntries checks flags against the rows. A flag that names no setting is always an error.
func (s *Set) flagEntries(flags map[string]string) ([]entry, error) {
	var out []entry
	var errs []error
	for _, k := range slices.Sorted(maps.Keys(flags)) {
		e := entry{name: canonical(k), text: flags[k], origin: Origin{Flag, "--" + strings.TrimLeft(k, "-")}}
		switch i := slices.IndexFunc(out, func(o entry) bool { return o.name == e.name }); {
		case !s.known(e.name):
			errs = append(errs, fmt.Errorf("%s: no such setting%s", e.origin, s.suggest(e.name)))
		case i >= 0:
			errs = append(errs, fmt.Errorf("%s and %s name the same setting", out[i].origin, e.origin))
		default:
			out = append(out, e)
		}
	}
	return out, errors.Join(errs...)
}

// canonical returns the table's spelling of a name from a flag or a YAML, TOML or JSON key.
func canonical(name string) string {
	name = strings.ToUpper(strings.TrimLeft(strings.TrimSpace(name), "-"))
	return strings.TrimPrefix(strings.NewReplacer("-", "_", ".", "_").Replace(name), Prefix)
}
