//go:build linux

package fault

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	seen := make(map[string]bool)
	for p := range NumPoints {
		require.NotEmpty(t, p.String())
		require.False(t, seen[p.String()], "%s twice", p)
		seen[p.String()] = true
		got, err := Parse(p.String())
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	_, err := Parse("nowhere")
	require.ErrorContains(t, err, "half copied")
	require.Equal(t, "point 200", Point(200).String())
}

// build compiles testdata/marked with the tags.
func build(t *testing.T, source, tags string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "marked")
	b, err := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-o", out, source).CombinedOutput()
	require.NoError(t, err, "%s", b)
	return out
}

// TestVanishes: a program with marks, built without the tag, has the same
// instructions as one that has none.
func TestVanishes(t *testing.T) {
	text := func(source, tags string) []byte {
		b, err := exec.Command("go", "tool", "objdump", "-gnu=false", "-s", `^main\.work$`, build(t, source, tags)).Output()
		require.NoError(t, err)
		return instructions(b)
	}
	plain, marked := text("./testdata/plain", ""), text("./testdata/marked", "")
	require.NotEmpty(t, plain)
	require.Equal(t, string(plain), string(marked))
	require.NotEqual(t, string(plain), string(text("./testdata/marked", "faults")), "the tag makes a difference")
}

// instructions cuts what names places: file, line and address.
func instructions(listing []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.SplitSeq(listing, []byte("\n")) {
		if f := bytes.Fields(line); len(f) > 3 && !bytes.HasPrefix(line, []byte("TEXT")) {
			out.Write(f[2]) // the encoding
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

// TestActions: what happens at a point, and what is known of it afterwards.
func TestActions(t *testing.T) {
	program := build(t, "./testdata/marked", "faults")
	for _, c := range []struct {
		name, plan string
		signal     syscall.Signal // that it ends by
		exit       int
		reserve    uint64
	}{
		{"no plan", "", 0, 0, 10},
		{"third", "reserve:3:KILL", syscall.SIGKILL, 0, 3},
		{"last", "reserve:10:KILL", syscall.SIGKILL, 0, 10},
		{"never", "reserve:11:KILL", 0, 0, 10},
		{"another point", "accept:1:KILL", 0, 0, 10},
		{"no such point", "resreve:1:KILL", 0, 2, 0},
		{"no such action", "reserve:1:HALT", 0, 2, 0},
		{"no count", "reserve:0:KILL", 0, 2, 0},
		{"no plan at all", "reserve", 0, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			hits := filepath.Join(t.TempDir(), "hits")
			cmd := exec.Command(program)
			cmd.Env = append(os.Environ(), PlanEnv+"="+c.plan, HitsEnv+"="+hits)
			_ = cmd.Run()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			require.Equal(t, c.signal != 0, status.Signaled(), "%v", cmd.ProcessState)
			if c.signal != 0 {
				require.Equal(t, c.signal, status.Signal())
			} else {
				require.Equal(t, c.exit, status.ExitStatus())
			}
			h, err := ReadHits(hits)
			require.NoError(t, err)
			require.Equal(t, Hits{Reserve: c.reserve}, h)
		})
	}
}

// TestStop: a stopped process goes on where it stood.
func TestStop(t *testing.T) {
	hits := filepath.Join(t.TempDir(), "hits")
	cmd := exec.Command(build(t, "./testdata/marked", "faults"))
	cmd.Env = append(os.Environ(), PlanEnv+"=reserve:5:STOP", HitsEnv+"="+hits)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	var status syscall.WaitStatus
	_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped())
	h, err := ReadHits(hits)
	require.NoError(t, err)
	require.EqualValues(t, 5, h[Reserve])
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, cmd.Wait())
	h, err = ReadHits(hits)
	require.NoError(t, err)
	require.EqualValues(t, 10, h[Reserve])
}

func TestReadHitsMissing(t *testing.T) {
	_, err := ReadHits(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
