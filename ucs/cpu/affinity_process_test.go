//go:build linux

package cpu

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

func TestProcessAffinity(t *testing.T) {
	before, err := Affinity()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, SetProcessAffinity(before)) })
	stop := make(chan bool)
	defer close(stop)
	for range 3 { // threads that exist already
		ready := make(chan bool)
		go func() {
			runtime.LockOSThread()
			close(ready)
			<-stop
		}()
		<-ready
	}
	want := before[len(before)-1]
	require.NoError(t, SetProcessAffinity([]int{want}))
	tasks, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	require.Greater(t, len(tasks), 3)
	for _, task := range tasks {
		b, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if os.IsNotExist(err) {
			continue // it ended
		}
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(b), "Cpus_allowed_list:")
		line, _, _ := strings.Cut(rest, "\n")
		require.Equal(t, FormatList([]int{want}), strings.TrimSpace(line), "thread %s", task.Name())
	}
	require.ErrorIs(t, SetProcessAffinity(nil), ucs.ErrInvalid)
}
