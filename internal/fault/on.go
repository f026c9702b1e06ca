//go:build faults && linux

package fault

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Enabled tells whether points act: this build's do.
const Enabled = true

// plan is what the environment wants of this process.
type plan struct {
	point  Point
	nth    uint64 // 0: nothing happens
	signal syscall.Signal
	hits   *os.File // nil: they are not written
}

var (
	planned = sync.OnceValue(load)
	counts  [NumPoints]atomic.Uint64
)

// At marks a point: it counts the hit and does what the environment wants there.
// From any goroutine.
//
//go:noinline
func At(p Point) {
	pl := planned()
	n := counts[p].Add(1)
	if pl.hits != nil {
		var b [hitBytes]byte
		binary.LittleEndian.PutUint64(b[:], n)
		if _, err := pl.hits.WriteAt(b[:], int64(p)*hitBytes); err != nil {
			refuse(err)
		}
	}
	if n == pl.nth && p == pl.point {
		// To this thread: it goes no step further, whichever thread the others run on.
		if err := syscall.Tgkill(syscall.Getpid(), syscall.Gettid(), pl.signal); err != nil {
			refuse(err)
		}
	}
}

// refuse ends the process: a test that asks for what is not there must not pass.
func refuse(err error) {
	fmt.Fprintln(os.Stderr, "fault:", err)
	os.Exit(2)
}

func load() (pl plan) {
	var err error
	if name := os.Getenv(HitsEnv); name != "" {
		if pl.hits, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			refuse(err)
		}
	}
	if s := os.Getenv(PlanEnv); s != "" {
		if pl.point, pl.nth, pl.signal, err = parsePlan(s); err != nil {
			refuse(err)
		}
	}
	return pl
}

func parsePlan(s string) (p Point, nth uint64, sig syscall.Signal, err error) {
	f := strings.Split(s, ":")
	if len(f) != 3 {
		return 0, 0, 0, fmt.Errorf("%s=%q is not point:n:action", PlanEnv, s)
	}
	if p, err = Parse(f[0]); err != nil {
		return 0, 0, 0, err
	}
	if nth, err = strconv.ParseUint(f[1], 10, 64); err != nil || nth == 0 {
		return 0, 0, 0, fmt.Errorf("%s=%q: %q is no count from 1", PlanEnv, s, f[1])
	}
	switch f[2] {
	case "KILL":
		return p, nth, syscall.SIGKILL, nil
	case "STOP":
		return p, nth, syscall.SIGSTOP, nil
	}
	return 0, 0, 0, fmt.Errorf("%s=%q: action %q is neither KILL nor STOP", PlanEnv, s, f[2])
}
