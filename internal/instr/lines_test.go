package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

// marks are stored to by a goroutine before and after what is counted of it. Each has a cache line.
var marks [2][8]uint64

// linesEnv is "trace" for the test that traces, and "send" for the process that it traces.
const linesEnv = "GOUCX_TEST_LINES"

// TestLinesOfTwoThreads traces the stores of two goroutines that send tag messages over shared memory, each by a
// Thread of one worker and to a receiving worker of its own, which it drives. They write no line in common.
func TestLinesOfTwoThreads(t *testing.T) {
	switch os.Getenv(linesEnv) {
	case "":
		t.Skip("scripts/instructions runs it")
	case "send":
		sendByTwoThreads(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), "valgrind", "--tool=lackey", "--trace-mem=yes", "--log-fd=1", os.Args[0], "-test.run=^TestLinesOfTwoThreads$")
	cmd.Env = append(os.Environ(), linesEnv+"=send", "GODEBUG=asyncpreemptoff=1,cpu.rdtscp=off", "GOGC=off", "GOMAXPROCS=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var at [2]uint64                // addresses of the marks
	var stores [2]map[uint64]uint64 // lines, with the last instruction that stored there
	active, instruction := -1, uint64(0)
	for in := bufio.NewScanner(out); in.Scan(); {
		line := in.Text()
		if text, ok := strings.CutPrefix(line, "marks at "); ok {
			_, err := fmt.Sscanf(text, "%v %v", &at[0], &at[1])
			require.NoError(t, err)
			continue
		}
		if len(line) < 4 || !strings.ContainsAny(line[:2], "ISM") {
			continue
		}
		address, _, _ := strings.Cut(strings.TrimSpace(line[2:]), ",")
		a, err := strconv.ParseUint(address, 16, 64)
		if err != nil {
			continue
		}
		if line[0] == 'I' {
			instruction = a
			continue
		}
		switch {
		case a == at[0] || a == at[1]:
			if active >= 0 {
				active = -1
				continue
			}
			if active = 0; a == at[1] {
				active = 1
			}
			stores[active] = make(map[uint64]uint64)
		case active >= 0 && ours(instruction):
			stores[active][a>>6] = instruction
		}
	}
	require.NoError(t, cmd.Wait())
	t.Logf("lines written by each: %d and %d", len(stores[0]), len(stores[1]))
	require.Greater(t, len(stores[0]), 10)
	require.Greater(t, len(stores[1]), 10)
	for l, by := range stores[0] {
		if other := stores[1][l]; other != 0 {
			t.Errorf("line %#x is written by both, in %s and %s", l<<6, place(by), place(other))
		}
	}
}

// ours reports whether an instruction is one of goucx, or copies for it: not one of the runtime's own.
func ours(pc uint64) bool {
	f := runtime.FuncForPC(uintptr(pc))
	return f != nil && (strings.Contains(f.Name(), "goucx/") || f.Name() == "runtime.memmove")
}

// place returns the name of the place of an instruction.
func place(pc uint64) string {
	f := runtime.FuncForPC(uintptr(pc))
	if f == nil {
		return fmt.Sprintf("%#x", pc)
	}
	file, line := f.FileLine(uintptr(pc))
	return fmt.Sprintf("%s (%s:%d)", f.Name(), file, line)
}

func sendByTwoThreads(t *testing.T) {
	set, _, err := config.Load(config.Options{Env: []string{"UCX_TLS=self,shm"}, Dirs: []string{}}, ucp.Tables(transports.All())...)
	require.NoError(t, err)
	x, err := ucp.Open(ucp.Config{Providers: transports.All(), Settings: set})
	require.NoError(t, err)
	defer func() { require.NoError(t, x.Close()) }()
	w, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	var sends [2]func(n int)
	for i := range sends {
		peer, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
		require.NoError(t, err)
		ep, err := w.NewEndpoint(peer.Address(), ucp.EndpointConfig{})
		require.NoError(t, err)
		th, err := w.NewThread()
		require.NoError(t, err)
		ep = ep.On(th)
		in, buf := make([]byte, 64), make([]byte, 64)
		sends[i] = func(n int) {
			for range n {
				r := peer.TagRecv(in[:8], 1, ^ucp.Tag(0))
				ep.TagSend(buf[:8], 1)
				for !r.Done() {
					peer.Progress()
					th.Progress()
				}
				r.Drop()
			}
		}
		sends[i](5000) // connects; slabs and rings have grown
	}
	fmt.Printf("marks at %p %p\n", &marks[0], &marks[1])
	done, end := make(chan struct{}), make(chan struct{})
	for i, send := range sends {
		go func() {
			send(1)
			marks[i][0] = 1
			send(1000)
			marks[i][0] = 2
			done <- struct{}{}
			<-end // so that the other one does not get its stack
		}()
		<-done
	}
	close(end)
}
