package rxe

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/test/rxe/vm"
)

var console = flag.String("rxe.console", "", "keep the kernel's log in this file")

// shared is the machine of all tests.
var shared struct {
	once    sync.Once
	machine *vm.Machine
	err     error
	times   []string // a line for each part, printed at the end

	provided map[string]bool // programs of this module that are in the machine
}

func TestMain(m *testing.M) {
	flag.Parse()
	shared.provided = map[string]bool{}
	code := m.Run()
	if shared.machine != nil {
		if err := shared.machine.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the machine:", err)
			code = 1
		}
	}
	for _, line := range shared.times {
		fmt.Println(line)
	}
	os.Exit(code)
}

// spent adds a line to the times, from start to now.
func spent(what string, start time.Time) {
	shared.times = append(shared.times, fmt.Sprintf("%7.1f s  %s", time.Since(start).Seconds(), what))
}

// machine returns the shared machine, which the first call boots.
func machine(t *testing.T) *vm.Machine {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("qemu-system-x86_64 is not installed: make test-rxe installs it")
	}
	shared.once.Do(func() { shared.machine, shared.err = boot() })
	require.NoError(t, shared.err)
	return shared.machine
}

// boot starts the machine.
func boot() (*vm.Machine, error) {
	start := time.Now()
	ctx := context.Background()
	kernel, err := vm.Load(ctx, "")
	if err != nil {
		return nil, err
	}
	spent("load the kernel", start)

	start = time.Now()
	m, err := vm.Start(ctx, kernel, vm.Config{Programs: toolPrograms(), Console: *console})
	if err == nil {
		spent(fmt.Sprintf("boot %s in %d attempts", kernel.Package, m.Boot.Attempts), start)
	}
	return m, err
}

// binary is a program of this module, static unless it uses cgo.
type binary struct {
	name  string
	verb  string // of the go command: build or test
	pkg   string // below the module's root
	flags []string
	cgo   bool
}

// The programs that tests run in the machine.
var (
	softTest = binary{"soft.test", "test", "verbs/soft", []string{"-c"}, false}
	ibvTest  = binary{"ibv.test", "test", "verbs/ibv", []string{"-c", "-tags=ibverbs"}, true}
	rdmapeer = binary{"rdmapeer", "build", "internal/rdmapeer", nil, false}

	transportTest = binary{"transport.test", "test", "test/rxe/conformance", []string{"-c", "-tags=ibverbs"}, true}
	perftest      = binary{"ucx_perftest", "build", "cmd/ucx_perftest", []string{"-tags=ibverbs"}, true}
)

// provide builds a program and puts it into the machine, once.
func provide(t *testing.T, b binary) {
	t.Helper()
	m := machine(t)
	if shared.provided[b.name] {
		return
	}
	start := time.Now()
	host := filepath.Join(t.TempDir(), b.name)
	cmd := exec.Command("go", slices.Concat([]string{b.verb, "-buildvcs=false", "-ldflags=-s -w", "-o", host}, b.flags, []string{"github.com/goucx/goucx/" + b.pkg})...)
	cmd.Env = append(os.Environ(), map[bool]string{false: "CGO_ENABLED=0", true: "CGO_ENABLED=1"}[b.cgo])
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", cmd, out)
	require.NoError(t, m.Put("/usr/bin/"+b.name, host))
	shared.provided[b.name] = true
	spent("build "+b.name, start)
}

// run runs a job that must end with status 0 and returns its result.
func run(t *testing.T, job vm.Job) *vm.Result {
	t.Helper()
	r, err := machine(t).Run(job)
	require.NoError(t, err)
	requireOK(t, strings.Join(job.Argv, " "), r)
	return r
}

// requireOK fails the test unless a job ended with status 0.
func requireOK(t *testing.T, what string, r *vm.Result) {
	t.Helper()
	if !r.OK() {
		t.Fatalf("%s: status %d %s%s, timed out: %v, after %v\nstdout:\n%s\nstderr:\n%s", what, r.Status, r.Signal, r.Failure, r.TimedOut, r.Took, r.Stdout, r.Stderr)
	}
}
