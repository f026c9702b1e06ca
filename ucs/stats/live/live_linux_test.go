package live

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// patience is how long a loaded machine may take to answer.
const patience = time.Minute

// page is one with something in each list.
func page() *Page {
	return &Page{
		Version: Version, PID: os.Getpid(), Command: []string{"program", "-x"}, Host: "here", OpenSeconds: 1.5,
		GoVersion: "go", MaxProcs: 2, Goroutines: 3, Settings: []Setting{{"UCX_TLS", "shm", "environment UCX_TLS"}},
		Workers: []Worker{{
			Name: "0a", Mode: "single", Responsive: true, AgeSeconds: 0.25, Counters: map[string]uint64{"ucp.received": 1 << 63},
			Summary: Summary{
				Endpoints: 1, Connected: 1, Unread: 2, Unexpected: 3, UnexpectedBytes: 4, UnexpectedBudget: 5, AllocatedBytes: 6,
				Peers:    []Endpoint{{Peer: "0b", State: "connected", Lanes: []Lane{{Name: "shm/memory", Pending: 4}}}},
				Requests: []Requests{{Op: "tag receive", State: "posted", Count: 3, Bytes: 24, OldestSeconds: 9, Tag: "0xa"}},
			},
		}},
	}
}

func TestOffer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	s, err := Serve(dir, page)
	require.NoError(t, err)
	other, err := Serve(dir, page)
	require.NoError(t, err)

	i, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), i.Mode().Perm())
	i, err = os.Stat(s.Path())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), i.Mode().Perm())

	found, err := List(dir)
	require.NoError(t, err)
	assert.ElementsMatch(t, []Program{{os.Getpid(), s.Path()}, {os.Getpid(), other.Path()}}, found)
	for range 3 {
		p, err := Read(s.Path(), patience)
		require.NoError(t, err)
		assert.Equal(t, page(), p)
	}

	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err = Read(s.Path(), patience)
	require.ErrorIs(t, err, os.ErrNotExist)
	found, err = List(dir)
	require.NoError(t, err)
	assert.Equal(t, []Program{{os.Getpid(), other.Path()}}, found)
	require.NoError(t, other.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestOfferRefuses(t *testing.T) {
	open := t.TempDir()
	require.NoError(t, os.Chmod(open, 0o777))
	_, err := Serve(open, page)
	require.ErrorIs(t, err, ucs.ErrInvalid)
	require.NoError(t, os.Chmod(open, 0o777|os.ModeSticky))
	s, err := Serve(open, page)
	require.NoError(t, err)
	require.NoError(t, s.Close())

	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(open, 4711, 4711))
		_, err = Serve(open, page)
		require.ErrorIs(t, err, ucs.ErrInvalid)
		require.ErrorContains(t, err, "user 4711")
	}

	_, err = Serve(filepath.Join(t.TempDir(), strings.Repeat("x", 90)), page)
	require.ErrorIs(t, err, ucs.ErrTooLong)

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = Serve(file, page)
	require.ErrorContains(t, err, "offer counters in "+file)
}

// TestPlantedDefaultDir: what another user has put in the place of the default directory
// is neither used nor followed, nor does it keep a program from being seen.
func TestPlantedDefaultDir(t *testing.T) {
	for name, plant := range map[string]func(t *testing.T, at, elsewhere string){
		"link":          func(t *testing.T, at, elsewhere string) { require.NoError(t, os.Symlink(elsewhere, at)) },
		"dangling link": func(t *testing.T, at, _ string) { require.NoError(t, os.Symlink("/nowhere", at)) },
		"file":          func(t *testing.T, at, _ string) { require.NoError(t, os.WriteFile(at, nil, 0o600)) },
		"open to all": func(t *testing.T, at, _ string) {
			require.NoError(t, os.Mkdir(at, 0o700))
			require.NoError(t, os.Chmod(at, 0o777))
		},
		"another user's": func(t *testing.T, at, _ string) {
			if os.Geteuid() != 0 {
				t.Skip("needs root, to give a directory to another user")
			}
			require.NoError(t, os.Mkdir(at, 0o700))
			require.NoError(t, os.Chown(at, 4711, 4711))
		},
	} {
		t.Run(name, func(t *testing.T) {
			elsewhere := t.TempDir()
			require.NoError(t, os.Chmod(elsewhere, 0o700)) // nothing but the link is wrong
			t.Setenv("TMPDIR", t.TempDir())
			plant(t, DefaultDir(), elsewhere)
			s, err := Serve(DefaultDir(), page)
			require.NoError(t, err)
			require.ErrorContains(t, s.FallbackReason(), DefaultDir())
			second, err := Serve(DefaultDir(), page)
			require.NoError(t, err)
			assert.Equal(t, filepath.Dir(s.Path()), filepath.Dir(second.Path()), "one directory for all")
			require.NoError(t, checkPrivate(filepath.Dir(s.Path())))
			found, err := List(DefaultDir())
			require.NoError(t, err)
			assert.ElementsMatch(t, []Program{{os.Getpid(), s.Path()}, {os.Getpid(), second.Path()}}, found)
			left, err := os.ReadDir(elsewhere)
			require.NoError(t, err)
			assert.Empty(t, left)
			require.NoError(t, s.Close())
			require.NoError(t, second.Close())
		})
	}
}

// TestPlantedFallback: a directory that looks like one in place of the default, and is not
// this user's, is passed over.
func TestPlantedFallback(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	elsewhere := t.TempDir()
	require.NoError(t, os.Chmod(elsewhere, 0o700))
	require.NoError(t, os.Symlink(elsewhere, DefaultDir()))
	require.NoError(t, os.Symlink(elsewhere, DefaultDir()+"-0"))
	stale(t, filepath.Join(elsewhere, "12-crashed.ucx"))
	s, err := Serve(DefaultDir(), page)
	require.NoError(t, err)
	found, err := List(DefaultDir())
	require.NoError(t, err)
	assert.Equal(t, []Program{{os.Getpid(), s.Path()}}, found)
	_, err = os.Lstat(filepath.Join(elsewhere, "12-crashed.ucx"))
	require.NoError(t, err, "nothing is removed elsewhere")
	require.NoError(t, s.Close())
}

func TestDefaultDir(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, err := Serve(DefaultDir(), page)
	require.NoError(t, err)
	require.NoError(t, s.FallbackReason())
	assert.Equal(t, DefaultDir(), filepath.Dir(s.Path()))
	require.NoError(t, s.Close())
}

// stale leaves a socket behind as a crash does.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
}

// What crashed programs left is removed; what is not ours stays.
func TestListSweeps(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	stale(t, at("12-crashed.ucx"))
	stale(t, at(".13-begins.ucx"))
	stale(t, at(".14-crashed.ucx"))
	stale(t, at("foreign"))
	stale(t, at("foreign-15.ucx"))
	old := time.Unix(1, 0)
	require.NoError(t, os.Chtimes(at(".14-crashed.ucx"), old, old))
	require.NoError(t, os.WriteFile(at("16-file.ucx"), nil, 0o600))

	found, err := List(dir)
	require.NoError(t, err)
	assert.Empty(t, found)
	var left []string
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	assert.ElementsMatch(t, []string{".13-begins.ucx", "foreign", "foreign-15.ucx", "16-file.ucx"}, left)

	found, err = List(at("nothing"))
	require.NoError(t, err)
	assert.Empty(t, found)
	_, err = List(at("16-file.ucx"))
	require.Error(t, err)
}

// serve answers each connection with text, or never where it is empty.
func serve(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "1-x.ucx")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if text == "" {
				t.Cleanup(func() { _ = c.Close() })
				continue
			}
			_, _ = c.Read(make([]byte, 1))
			_, _ = c.Write([]byte(text))
			_ = c.Close()
		}
	}()
	return path
}

func TestReadRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		limit time.Duration
		want  error
	}{
		"silence":       {"", time.Millisecond, ucs.ErrTimeout},
		"no time":       {"", time.Nanosecond, ucs.ErrTimeout},
		"no page":       {"hello", patience, ucs.ErrInvalid},
		"half a page":   {`{"version":1,"pid":`, patience, ucs.ErrInvalid},
		"later version": {`{"version":2}`, patience, ucs.ErrInvalid},
		"wrong types":   {`{"version":1,"workers":[{"counters":{"a":-1}}]}`, patience, ucs.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			path := serve(t, tc.text)
			_, err := Read(path, tc.limit)
			require.ErrorIs(t, err, tc.want)
			assert.ErrorContains(t, err, "read "+path)
		})
	}
}

// A reader that says nothing does not keep others from reading for long, and no
// page is made for it.
func TestSilentReader(t *testing.T) {
	asked := make(chan struct{}, 10)
	s, err := Serve(t.TempDir(), func() *Page { asked <- struct{}{}; return page() })
	require.NoError(t, err)
	c, err := net.Dial("unix", s.Path())
	require.NoError(t, err)
	_, err = Read(s.Path(), patience)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	assert.Len(t, asked, 1)
}

func TestDestination(t *testing.T) {
	for s, dir := range map[string]string{"": "", "unix": DefaultDir(), "unix:/run/x": "/run/x", "unix:y": "y"} {
		require.NoError(t, CheckDestination(s), s)
		assert.Equal(t, dir, Dir(s), s)
	}
	for _, s := range []string{"unix:", "udp:host", "file:x", "stdout", "/tmp", "UNIX"} {
		require.Error(t, CheckDestination(s), s)
	}
}

func TestPidOf(t *testing.T) {
	for name, pid := range map[string]int{
		"12-ab.ucx": 12, "/x/12-ab.ucx": 12, "12.ucx": 12, "12-ab": 0, "-ab.ucx": 0, "x-ab.ucx": 0, "-1-a.ucx": 0, ".ucx": 0, "0-a.ucx": 0,
	} {
		assert.Equal(t, pid, pidOf(name), name)
	}
}
