package cpu

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

func TestCyclesGoOnAtTheirRate(t *testing.T) {
	rate := CyclesPerSecond()
	assert.Greater(t, rate, 1e6)
	assert.Less(t, rate, 1e11)
	assert.Equal(t, rate, CyclesPerSecond())
	c0, t0 := readClocks()
	last := c0
	for ucs.Now().Sub(t0) < 20*time.Millisecond {
		Pause()
		c := Cycles()
		require.GreaterOrEqual(t, c, last)
		last = c
	}
	c1, t1 := readClocks()
	assert.InEpsilon(t, t1.Sub(t0).Seconds(), float64(c1-c0)/rate, 0.01)
}

// TestHints: hints change nothing, whatever they are given.
func TestHints(t *testing.T) {
	b := make([]byte, 1000)
	for i := range b {
		b[i] = byte(i)
	}
	want := slices.Clone(b)
	for _, p := range [][]byte{b, b[1:2], b[63:129], b[:0], nil} {
		Prefetch(p)
		Demote(p)
	}
	assert.Equal(t, want, b)
}

func TestParseList(t *testing.T) {
	for text, want := range map[string][]int{
		"":             nil,
		" \n":          nil,
		"0":            {0},
		"0-3,8":        {0, 1, 2, 3, 8},
		"3,1\n":        {3, 1},
		"2,0-3,2":      {2, 0, 1, 3},
		" 1 , 4 - 5 ":  {1, 4, 5},
		"65535":        {65535},
		"007":          {7},
		"65534-65535 ": {65534, 65535},
	} {
		got, err := ParseList(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{
		",", "1,", "-", "-1", "1-", "3-1", "a", "1-2-3", "65536", "0-4294967295", "0x1", "1 2", "+1", "1;2",
		"99999999999999999999", "0-3:1/2",
	} {
		got, err := ParseList(text)
		assert.ErrorIs(t, err, ucs.ErrInvalid, text)
		assert.Nil(t, got)
	}
}

func TestFormatList(t *testing.T) {
	for want, list := range map[string][]int{
		"": nil, "0": {0}, "0-3,8": {0, 1, 2, 3, 8}, "3,1": {3, 1}, "4-5,1-2": {4, 5, 1, 2},
	} {
		assert.Equal(t, want, FormatList(list))
	}
}

func FuzzParseList(f *testing.F) {
	for _, s := range []string{"0-3,8", "", "3,1", "65535", "1-", "0-3,2-5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := ParseList(s)
		if err != nil {
			return
		}
		again, err := ParseList(FormatList(list))
		require.NoError(t, err)
		require.Equal(t, list, again)
	})
}

func TestAffinity(t *testing.T) {
	before, err := Affinity()
	if errors.Is(err, ucs.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NotEmpty(t, before)
	done := make(chan struct{})
	go func() { // its thread ends with it
		defer close(done)
		runtime.LockOSThread()
		for _, c := range before[:1] {
			assert.NoError(t, SetAffinity([]int{c}))
			got, err := Affinity()
			assert.NoError(t, err)
			assert.Equal(t, []int{c}, got)
		}
		assert.ErrorIs(t, SetAffinity(nil), ucs.ErrInvalid)
		assert.ErrorIs(t, SetAffinity([]int{-1}), ucs.ErrInvalid)
		assert.ErrorIs(t, SetAffinity([]int{1 << 20}), ucs.ErrInvalid)
		assert.Error(t, SetAffinity([]int{1023}), "no machine of ours has it")
	}()
	<-done
	after, err := Affinity()
	require.NoError(t, err)
	assert.True(t, slices.Equal(before, after), "other threads stay where they were")
}

func BenchmarkCycles(b *testing.B) {
	for b.Loop() {
		Cycles()
	}
}

func BenchmarkYield(b *testing.B) {
	for b.Loop() {
		Yield()
	}
}
