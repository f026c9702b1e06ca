//go:build linux

package test

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

// census counts what this process holds of the system.
type census struct {
	Descriptors map[string]int // by kind
	Mappings    map[string]int // of segments, by name
	Goroutines  int
}

var number = regexp.MustCompile(`[0-9]+`)

// takeCensus counts. What the runtime and the libraries take once for good has
// been taken by warmUp.
func takeCensus(t testing.TB) census {
	t.Helper()
	c := census{Descriptors: make(map[string]int), Mappings: make(map[string]int), Goroutines: runtime.NumGoroutine()}
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range fds {
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err != nil || strings.HasPrefix(to, "/proc/") {
			continue // the directory's own descriptor
		}
		c.Descriptors[number.ReplaceAllString(to, "N")]++
	}
	for _, m := range maps(t, "self", "goucx-", "/dev/shm") {
		c.Mappings[strings.Fields(m)[5]]++
	}
	return c
}

// exposed counts what stays for good with memory of the program whose Close
// answered ErrBufferExposed: the key table in which its peer stands as inside.
func (c census) exposed() {
	c.Descriptors["/memfd:goucx-keys (deleted)"]++
	c.Mappings["/memfd:goucx-keys"]++
}

// requireBack waits until the process holds what it held, no more. Goroutines
// and collected descriptors take a moment to go.
func requireBack(t testing.TB, before census) {
	t.Helper()
	limit := time.Now().Add(5 * time.Second)
	for {
		runtime.GC()
		now := takeCensus(t)
		if now.Goroutines < before.Goroutines {
			now.Goroutines = before.Goroutines // one of an earlier test ended
		}
		if fmt.Sprint(now) == fmt.Sprint(before) {
			return
		}
		if time.Now().After(limit) {
			if now.Goroutines > before.Goroutines {
				b := make([]byte, 1<<20)
				t.Logf("%s", b[:runtime.Stack(b, true)])
			}
			require.Equal(t, before, now, "this process holds what it did not")
		}
		time.Sleep(time.Millisecond)
	}
}

// requireNoTrace wants no file of goucx in /dev/shm and in dirs.
func requireNoTrace(t testing.TB, dirs ...string) {
	t.Helper()
	for _, dir := range append(dirs, "/dev/shm") {
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range files {
			if f.Name() == "goucx-test" {
				continue // a test of ucs/shmem tries what is no memfd
			}
			require.NotContains(t, f.Name(), "goucx", "left in %s", dir)
		}
	}
}

// warmUp has made what is made once in a process: the runtime's poller and such.
func warmUp() {
	x, err := goucx.Open(ucp.Config{})
	if err != nil {
		panic(err)
	}
	defer x.Close()
	for _, mode := range []ucp.ThreadMode{ucp.ThreadMulti, ucp.ThreadSingle} {
		if _, err := x.NewWorker(ucp.WorkerConfig{Mode: mode}); err != nil {
			panic(err)
		}
	}
	if _, err := x.Allocate(1, ucp.MemConfig{}); err != nil {
		panic(err)
	}
	time.AfterFunc(0, func() {}).Stop()
}

// waitApart waits until the process has no connection any more.
func waitApart(t testing.TB, s *node, p *process) {
	t.Helper()
	until(t, func() bool { return len(maps(t, pidOf(p), "goucx-pair")) == 0 }, s.progressLong)
}

// progressLong is a pass between costly looks.
func (n *node) progressLong() int {
	for range 1000 {
		n.w.Progress()
	}
	return 0
}

func descriptors(t testing.TB, p *process) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/" + pidOf(p) + "/fd")
	require.NoError(t, err)
	return len(fds)
}

// descriptorsAtRest returns the number of a process's open descriptors once it has
// stayed the same for a while: a process that just took a connection down may
// still be closing some.
func descriptorsAtRest(t testing.TB, p *process) int {
	t.Helper()
	n, same := descriptors(t, p), 0
	require.Eventually(t, func() bool {
		now := descriptors(t, p)
		if same++; now != n {
			n, same = now, 0
		}
		return same == 20
	}, patience, 5*time.Millisecond)
	return n
}
