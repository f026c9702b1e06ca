package shmem

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/suitetest"

	"github.com/goucx/goucx/ucs"
)

func TestCreateMapsZeroedSealedMemory(t *testing.T) {
	s, err := Create("goucx-test", 10_000)
	require.NoError(t, err)
	require.Len(t, s.Bytes(), 10_000)
	assert.Zero(t, s.Bytes()[9_999])
	for _, size := range []int64{0, 4096, 20_000} {
		assert.ErrorIs(t, unix.Ftruncate(s.FD(), size), unix.EPERM)
	}
	_, err = unix.FcntlInt(uintptr(s.FD()), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	assert.ErrorIs(t, err, unix.EPERM)

	s.Bytes()[0] = 7
	dup, err := unix.Dup(s.FD())
	require.NoError(t, err)
	other, err := Map(dup, 10_000)
	require.NoError(t, err)
	assert.Equal(t, byte(7), other.Bytes()[0])
	require.NoError(t, other.Close())
	require.NoError(t, s.Close())
}

func TestCreateRefusesSizes(t *testing.T) {
	for _, size := range []int{0, -1, math.MinInt, math.MaxInt} {
		_, err := Create("goucx-test", size)
		assert.ErrorIs(t, err, ErrSize, size)
	}
	before := openFDs(t)
	_, err := Create("goucx-test", math.MaxInt-pageSlack)
	assert.Error(t, err, "more than the address space")
	_, err = Create("nul\x00name", 4096)
	assert.Error(t, err)
	assert.Equal(t, before, openFDs(t))
}

func TestCloseIsIdempotent(t *testing.T) {
	before := openFDs(t)
	s, err := Create("goucx-test", 4096)
	require.NoError(t, err)
	require.NoError(t, s.CloseFD())
	require.NoError(t, s.CloseFD())
	assert.Equal(t, -1, s.FD())
	s.Bytes()[4095] = 1
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	assert.Nil(t, s.Bytes())
	assert.ErrorIs(t, s.Populate(), ucs.ErrClosed)
	assert.Equal(t, before, openFDs(t))
}

func TestPopulateTakesEveryPage(t *testing.T) {
	suitetest.SkipEmulated(t)
	page := unix.Getpagesize()
	s, err := Create("goucx-test", 16*page)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	s.Bytes()[3] = 9
	require.NoError(t, s.Populate())
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(s.FD(), &st))
	assert.Equal(t, int64(16*page), st.Blocks*512)
	touch(s.Bytes())
	assert.Equal(t, byte(9), s.Bytes()[3])
}

// The kernel would end the process for it.
func TestPopulateRefusesMoreThanTheHostHas(t *testing.T) {
	suitetest.SkipEmulated(t)
	var host unix.Sysinfo_t
	require.NoError(t, unix.Sysinfo(&host))
	s, err := Create("goucx-test", int((host.Totalram+host.Totalswap)*uint64(host.Unit))+1<<20)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.ErrorIs(t, s.Populate(), unix.ENOMEM)
}

// memfd makes an unmapped memfd of 8192 bytes with the given seals.
func memfd(t *testing.T, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("goucx-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	t.Cleanup(func() { CloseFDs(fd) })
	require.NoError(t, unix.Ftruncate(fd, 8192))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	return fd
}

func TestMapChecksBeforeTouching(t *testing.T) {
	file := func(dir string) int {
		f, err := os.Create(filepath.Join(dir, "goucx-test"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close(); _ = os.Remove(f.Name()) })
		require.NoError(t, f.Truncate(8192))
		return int(f.Fd())
	}
	sealed := memfd(t, seals)
	plain, err := unix.MemfdCreate("goucx-test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer CloseFDs(plain)
	require.NoError(t, unix.Ftruncate(plain, 8192))
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer CloseFDs(pipe[:]...)

	cases := map[string]struct {
		fd, size int
		want     error
	}{
		"shrink not sealed": {memfd(t, unix.F_SEAL_GROW|unix.F_SEAL_SEAL), 8192, ErrUnsealed},
		"grow not sealed":   {memfd(t, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL), 8192, ErrUnsealed},
		"seals not sealed":  {memfd(t, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW), 8192, ErrUnsealed},
		"sealing off":       {plain, 8192, ErrUnsealed},
		"too short":         {sealed, 8193, ErrSize},
		"too long":          {sealed, 8191, ErrSize},
		"zero":              {sealed, 0, ErrSize},
		"negative":          {sealed, -8192, ErrSize},
		"pipe":              {pipe[0], 8192, ErrBacking},
		"proc file":         {int(mustOpen(t, "/proc/version").Fd()), 8192, ErrBacking},
		"no descriptor":     {-1, 8192, unix.EBADF},
		"write sealed":      {memfd(t, seals|unix.F_SEAL_WRITE), 8192, unix.EPERM},
	}
	if _, err := os.Stat("/dev/shm"); err == nil {
		cases["file in /dev/shm"] = struct {
			fd, size int
			want     error
		}{file("/dev/shm"), 8192, ErrUnsealed}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := Map(c.fd, c.size)
			assert.Nil(t, s)
			assert.ErrorIs(t, err, c.want)
		})
	}
	_, err = unix.FcntlInt(uintptr(sealed), unix.F_GETFD, 0)
	assert.NoError(t, err, "a refused descriptor stays the caller's")
}

func mustOpen(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}
