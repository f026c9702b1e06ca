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

// Enabled reports whether points act: in this build they do.
const Enabled = true

// plan is the action that the environment requests.
type plan struct {
	point  Point
	nth    uint64 // 0: no action
	signal syscall.Signal
	hits   *os.File // nil: not written
}

var (
	planned = sync.OnceValue(load)
	counts  [NumPoints]atomic.Uint64
)

// At marks a point. It counts the hit and executes the requested action. It may be called from any
// goroutine.
//
//go:noinline
func At(p Point) {
	pl := planned()
	n := counts[p].Add(1)
	if pl.hits != nil {
		var b [hitBytes]byte
		binary.LittleEndian.PutUint64(b[:], n)
		if _, err := pl.hits.WriteAt(b[:], int64(p)*hitBytes); err != nil {
			exitInvalid(err)
		}
	}
	if n == pl.nth && p == pl.point {
		// Signal this thread, so that it executes no further step while other threads may still
		// run.
		if err := syscall.Tgkill(syscall.Getpid(), syscall.Gettid(), pl.signal); err != nil {
			exitInvalid(err)
		}
	}
}

// exitInvalid exits the process: a test with an invalid request must not pass.
func exitInvalid(err error) {
	fmt.Fprintln(os.Stderr, "fault:", err)
	os.Exit(2)
}

func load() (pl plan) {
	var err error
	if name := os.Getenv(HitsEnv); name != "" {
		if pl.hits, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			exitInvalid(err)
		}
	}
	if s := os.Getenv(PlanEnv); s != "" {
		if pl.point, pl.nth, pl.signal, err = parsePlan(s); err != nil {
			exitInvalid(err)
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
