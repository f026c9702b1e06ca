package shm

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// fakeOwner answers one request with what the test wants.
func fakeOwner(t *testing.T, reply func(socket string) ([]byte, []int)) string {
	t.Helper()
	socket := keySocket("")
	l, err := shmem.Listen(socket)
	require.NoError(t, err)
	served := make(chan struct{})
	t.Cleanup(func() { <-served; require.NoError(t, l.Close()) })
	go func() {
		defer close(served)
		var c *shmem.Conn
		for c == nil {
			var err error
			if c, err = l.Accept(); err != nil && !errors.Is(err, shmem.ErrWouldBlock) {
				t.Error(err)
				return
			}
			runtime.Gosched()
		}
		defer c.Close() //nolint:errcheck // the test is over
		var buf [requestLen]byte
		n, _, err := recvUntil(c, buf[:], ucs.Now().Add(patience))
		var a keyRequest
		if err == nil {
			err = a.parse(buf[:n])
		}
		if err != nil {
			t.Error(err)
			return
		}
		b, fds := reply(socket)
		if b != nil {
			if err := c.Send(b, fds...); err != nil {
				t.Error(err)
			}
		}
		shmem.CloseFDs(fds...)
	}()
	return socket
}

func memfd(t *testing.T, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("goucx-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, size))
	if seals != 0 {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		require.NoError(t, err)
	}
	return fd
}

// TestBadGrants: whatever an owner hands out is looked at before it is touched,
// and given back where it is refused.
func TestBadGrants(t *testing.T) {
	const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	const size = 8192
	table := func() int { return memfd(t, tableBytes, sealed) }
	region := func() int { return memfd(t, size, sealed) }
	ok := func(p mapped.PackedKey) []byte { r := keyReply{status: keyOK, region: p}; return r.append(nil) }
	for _, c := range []struct {
		name  string
		reply func(p mapped.PackedKey) ([]byte, []int)
		is    error
	}{
		{"good", func(p mapped.PackedKey) ([]byte, []int) { return ok(p), []int{table(), region()} }, nil},
		{"unsealed region", func(p mapped.PackedKey) ([]byte, []int) { return ok(p), []int{table(), memfd(t, size, 0)} }, shmem.ErrUnsealed},
		{"shrinkable region", func(p mapped.PackedKey) ([]byte, []int) {
			return ok(p), []int{table(), memfd(t, size, unix.F_SEAL_GROW|unix.F_SEAL_SEAL)}
		}, shmem.ErrUnsealed},
		{"truncated region", func(p mapped.PackedKey) ([]byte, []int) { return ok(p), []int{table(), memfd(t, 4096, sealed)} }, shmem.ErrSize},
		{"larger region", func(p mapped.PackedKey) ([]byte, []int) { return ok(p), []int{table(), memfd(t, size+1, sealed)} }, shmem.ErrSize},
		{"empty region", func(p mapped.PackedKey) ([]byte, []int) { return ok(p), []int{table(), memfd(t, 0, sealed)} }, shmem.ErrSize},
		{"region is a pipe", func(p mapped.PackedKey) ([]byte, []int) {
			var fds [2]int
			require.NoError(t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
			require.NoError(t, unix.Close(fds[1]))
			return ok(p), []int{table(), fds[0]}
		}, shmem.ErrBacking},
		{"region is a file", func(p mapped.PackedKey) ([]byte, []int) {
			fd, err := unix.Open(os.Args[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			return ok(p), []int{table(), fd}
		}, nil}, // which error depends on the file system
		{"unsealed table", func(p mapped.PackedKey) ([]byte, []int) { return ok(p), []int{memfd(t, tableBytes, 0), region()} }, shmem.ErrUnsealed},
		{"short table", func(p mapped.PackedKey) ([]byte, []int) { return ok(p), []int{memfd(t, 4096, sealed), region()} }, shmem.ErrSize},
		{"no descriptors", func(p mapped.PackedKey) ([]byte, []int) { return ok(p), nil }, errReply},
		{"one descriptor", func(p mapped.PackedKey) ([]byte, []int) { return ok(p), []int{table()} }, errReply},
		{"three descriptors", func(p mapped.PackedKey) ([]byte, []int) { return ok(p), []int{table(), region(), region()} }, errReply},
		{"eight descriptors", func(p mapped.PackedKey) ([]byte, []int) {
			return ok(p), []int{table(), region(), region(), region(), region(), region(), region(), region()}
		}, errReply},
		{"refusal with descriptors", func(mapped.PackedKey) ([]byte, []int) {
			r := keyReply{status: keyRevoked}
			return r.append(nil), []int{table()}
		}, errReply},
		{"garbage", func(mapped.PackedKey) ([]byte, []int) { return []byte("garbage, and more of it"), nil }, errReply},
		{"too long", func(mapped.PackedKey) ([]byte, []int) { return make([]byte, 1000), nil }, ucs.ErrTruncated},
		{"another region", func(p mapped.PackedKey) ([]byte, []int) { p.Len--; return ok(p), []int{table(), region()} }, ucs.ErrRemoteAccess},
		{"hang-up", func(mapped.PackedKey) ([]byte, []int) { return nil, nil }, ucs.ErrPeerFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newTestDomain(t)
			before, mapsBefore := open(t)
			p := mapped.PackedKey{Kind: mapped.Allocated, Flags: uct.MemRemote, Domain: mapped.NewID(), Gen: 5, Base: 1 << 20, Len: size}
			granted := p
			p.Socket = fakeOwner(t, func(socket string) ([]byte, []int) {
				granted.Socket = socket
				return c.reply(granted)
			})
			k, err := d.UnpackKey(p.Append(nil))
			if c.name == "good" {
				require.NoError(t, err)
				assert.Equal(t, ucs.RemoteAccess, accessor(d).PutUint64(1, p.Base, k), "its table holds no generation")
				d.ReleaseKey(k)
			} else {
				require.Error(t, err)
			}
			if c.is != nil {
				assert.ErrorIs(t, err, c.is)
			}
			require.Eventually(t, func() bool { now, _ := open(t); return now <= before+1 }, patience, time.Millisecond, "the listener alone is left")
			_, maps := open(t)
			assert.Equal(t, mapsBefore, maps)
			assert.Empty(t, d.remotes)
		})
	}
}

// TestAnotherUser: neither side talks to one.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	d := newTestDomain(t)
	m, err := d.Allocate(10, uct.MemRemote)
	require.NoError(t, err)
	started, err := tryStart(t, "memory", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}})
	if err != nil {
		t.Skipf("the test binary cannot be run by another user: %v", err)
	}
	other := memoryProcess{started}
	assert.Contains(t, other.ask("unpack %x", m.AppendKey(nil)), "of user 0")
	_, err = d.UnpackKey(unhex(other.ask("alloc 10 %d", uct.MemRemote)))
	assert.ErrorIs(t, err, os.ErrPermission)
	assert.ErrorContains(t, err, "of user 12345")
	require.NoError(t, m.Close())
}

// TestNamespaces: what a container hides is named.
func TestNamespaces(t *testing.T) {
	d := newTestDomain(t)
	m, err := d.Allocate(10, uct.MemRemote)
	require.NoError(t, err)
	r, err := d.Register(make([]byte, 10), uct.MemRemote)
	require.NoError(t, err)
	t.Run("pid", func(t *testing.T) {
		started, err := tryStart(t, "memory", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
		if err != nil {
			t.Skipf("no pid namespace: %v", err)
		}
		other := memoryProcess{started}
		assert.Equal(t, "key 0", other.ask("unpack %x", m.AppendKey(nil)), "mapped memory needs no process id")
		answer := other.ask("unpack %x", r.AppendKey(nil))
		assert.Contains(t, answer, "pid namespace")
		assert.Contains(t, answer, "process_vm_readv")
		assert.Contains(t, answer, "allocate")
	})
	t.Run("net", func(t *testing.T) {
		started, err := tryStart(t, "memory", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
		if err != nil {
			t.Skipf("no network namespace: %v", err)
		}
		other := memoryProcess{started}
		assert.Contains(t, other.ask("unpack %x", m.AppendKey(nil)), "UCX_SHM_SOCKET_DIR")
	})
	require.NoError(t, m.Close())
	require.NoError(t, r.Close())
}
