//go:build linux

package chaos

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// faultAt is the number of messages after which members make their fault. It is even.
const faultAt = 6

// faultyNumber is n, or what a member with a fault takes for it.
func (m *member) faultyNumber(n uint32) uint32 {
	switch {
	case m.Fault == "order" && (n == faultAt || n == faultAt+1):
		return n ^ 1
	case m.Fault == "loss" && n >= faultAt:
		return n + 1
	default:
		return n
	}
}

// Each fault that members make is reported, first and briefly, with the command that
// repeats it and a file with the states of all members.
func TestFaultsAreReported(t *testing.T) {
	for fault, want := range map[string]string{
		"content": `member \d+: message 0x\w+: 1 of \d+ bytes are wrong`,
		"order":   `misses messages of member \d+, which was not killed: message 7 of class 0 where 6 was due`,
		"loss":    `misses messages of member \d+, which was not killed: message 7 of class 0 where 6 was due`,
		"put":     `get of \d+ bytes: at \d+: 1 of \d+ bytes are wrong`,
		"deaf":    `a request is in progress for`,
		"leak":    `after Close this process holds`,
		"panic":   `ended by itself: exit status 2`,
	} {
		t.Run(fault, func(t *testing.T) {
			c := exec.Command("/proc/self/exe", "-test.run=^TestChaos$/^shm$", "-test.v", "-chaos.fault="+fault, "-chaos.seed=1", "-chaos.members=2",
				"-chaos.time=2s", "-chaos.patience=5s", "-chaos.without=cancel,events")
			out, err := c.CombinedOutput()
			text := string(out)
			require.Error(t, err, text)
			lines := strings.Split(text, "\n")
			require.Less(t, len(lines), 50, text)
			begin := regexp.MustCompile(`anomalies under the setting shm, seed 1:`).FindStringIndex(text)
			require.NotNil(t, begin, text)
			first, _, _ := strings.Cut(text[begin[1]+1:], "\n")
			require.Regexp(t, "1\\. .*"+want, first, text)
			require.Regexp(t, `again: go test (-race )?\./test/chaos -run '\^TestChaos\$/\^shm\$' -chaos\.seed=1 `, text)
			file := regexp.MustCompile(`states of all members, with goroutines: (\S+)`).FindStringSubmatch(text)
			require.NotNil(t, file, text)
			states, err := os.ReadFile(file[1])
			require.NoError(t, err)
			require.NoError(t, os.Remove(file[1]))
			require.Contains(t, string(states), "link to ")
			if fault == "panic" {
				require.Contains(t, text, "a member's fault")
			}
		})
	}
}

// What a member holds on to is judged by its heap, and by what the system counts.
func TestGrowthIsSeen(t *testing.T) {
	before := use{resident: 100 << 20, heap: 20 << 20, fds: 30, goroutines: 10}
	for _, c := range []struct {
		what string
		now  use
	}{
		{"", before},
		{"", use{resident: 120 << 20, heap: 24 << 20, fds: 40, goroutines: 20}},
		{"the heap", use{resident: 100 << 20, heap: 40 << 20, fds: 30, goroutines: 10}},
		{"resident memory", use{resident: 200 << 20, heap: 20 << 20, fds: 30, goroutines: 10}},
		{"the number of descriptors", use{resident: 100 << 20, heap: 20 << 20, fds: 60, goroutines: 10}},
		{"the number of goroutines", use{resident: 100 << 20, heap: 20 << 20, fds: 30, goroutines: 30}},
	} {
		require.Equal(t, c.what, c.now.above(before))
	}
	var u use
	u.add(stat{RSS: 2, Heap: 10, Pool: 4, FDs: 1, Goroutines: 1})
	u.add(stat{RSS: 1, Heap: 9, Pool: 4, FDs: 2, Goroutines: 3})
	require.Equal(t, use{resident: 2, heap: 5, fds: 2, goroutines: 3}, u)
}
