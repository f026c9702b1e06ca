// Package threadtest compares, in benchmarks, what threads of one program do side by side with what several
// programs do on the same processors.
package threadtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs/cpu"
)

// Loop repeats an operation for a time and returns how often.
type Loop func(d time.Duration) int

// Form is a way to run loops side by side: each on a processor of its own, as threads of this program, or
// each in a program of its own.
type Form struct {
	Name string
	// Loops are the threads of this program; with Programs they are unused.
	Loops []Loop
	// Programs is the name of a test that calls Serve. Processors is how many of these run.
	Programs   string
	Processors int
	// Against are the names of the forms with whose rate that of this one is compared.
	Against []string
}

// window is the time for which a form runs before it is the turn of the next.
const window = 100 * time.Millisecond

const programEnv = "GOUCX_TEST_PROGRAM" // number of the processor

// Serve runs the loop that open returns, if the process was started by Compare. It must be all that its
// test does.
func Serve(t *testing.T, open func() Loop) {
	var i int
	if _, err := fmt.Sscan(os.Getenv(programEnv), &i); err != nil {
		return // the tests of a package run it too
	}
	loop := open()
	onProcessor(i, func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			fmt.Fprintln(os.Stdout, "did", loop(window))
		}
	})
}

// program is a process that serves.
type program struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(b *testing.B, test string, i int) *program {
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$") //nolint:gosec // the test itself
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", programEnv, i))
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &program{in, bufio.NewScanner(out)}
}

// onProcessor runs f on a thread of its own that stays on one processor.
func onProcessor(i int, f func()) {
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		_ = cpu.SetAffinity([]int{i % runtime.NumCPU()})
		f()
	})
	done.Wait()
}

// Compare runs the forms in turn, for 100 ms each, as often as b says. It reports medians: the rate of each
// form in millions a second, and its ratio to that of others in the same round.
func Compare(b *testing.B, forms ...Form) {
	b.Helper()
	programs := make([][]*program, len(forms))
	for k, f := range forms {
		for i := range f.Processors {
			programs[k] = append(programs[k], start(b, f.Programs, i))
		}
	}
	rates := make(map[string][]float64) // by form, in the order of the rounds
	for b.Loop() {
		for k, f := range forms {
			n := run(b, f.Loops, programs[k])
			rates[f.Name] = append(rates[f.Name], float64(n)/window.Seconds()/1e6)
		}
	}
	for _, f := range forms {
		b.ReportMetric(median(rates[f.Name]), f.Name+"-M/s")
		for _, other := range f.Against {
			ratios := slices.Clone(rates[f.Name])
			for i, r := range rates[other] {
				ratios[i] /= r
			}
			b.ReportMetric(median(ratios), f.Name+"/"+other)
		}
	}
	b.ReportMetric(0, "ns/op")
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// run runs loops, or programs, for a window, and returns the sum of what they did.
func run(b *testing.B, loops []Loop, programs []*program) (sum int) {
	did := make([]int, max(len(loops), len(programs)))
	var all sync.WaitGroup
	for i, l := range loops {
		all.Go(func() { onProcessor(i, func() { did[i] = l(window) }) })
	}
	for _, p := range programs {
		_, err := fmt.Fprintln(p.in)
		require.NoError(b, err)
	}
	for i, p := range programs {
		require.True(b, p.out.Scan())
		_, err := fmt.Sscanf(p.out.Text(), "did %d", &did[i])
		require.NoError(b, err)
	}
	all.Wait()
	for _, n := range did {
		sum += n
	}
	return sum
}
