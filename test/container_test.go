//go:build linux

package test

import (
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

const socketDirEnv = "UCX_SHM_SOCKET_DIR"

// apart starts a peer in namespaces of its own, which who is not root may do in a
// user namespace; the test is skipped where the system does not permit that.
func apart(t *testing.T, flags uintptr) *process {
	return permitted(t, func(c *exec.Cmd) {
		c.SysProcAttr.Cloneflags = flags
		if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
			c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
			c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		}
		if flags&syscall.CLONE_NEWPID != 0 {
			c.SysProcAttr.Pdeathsig = 0 // it cannot see its parent there, and would end itself
		}
	})
}

func permitted(t *testing.T, change func(*exec.Cmd)) *process {
	t.Helper()
	p, err := tryStart(t, "peer", change)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		t.Skipf("the system does not permit to start such a process: %v", err)
	}
	require.NoError(t, err)
	return p
}

// container is what separates two containers of one host.
const container = syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNS

// TestOtherNetworkNamespace: abstract sockets do not reach there, and the error
// says what does.
func TestOtherNetworkNamespace(t *testing.T) {
	withinHost(t)
	v := apart(t, syscall.CLONE_NEWNET)
	requireRefused(t, v, []string{"another network namespace", socketDirEnv})
}

// TestOtherUser: shared memory of another user is not for this one.
func TestOtherUser(t *testing.T) {
	withinHost(t)
	if os.Getuid() != 0 {
		t.Skip("only root may start a process of another user")
	}
	const nobody = 65534
	v := permitted(t, func(c *exec.Cmd) {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		c.Env = append(c.Env, "HOME=/")
	})
	requireRefused(t, v, []string{"user"})
}

// requireRefused: neither side reaches the other, and both say why.
func requireRefused(t *testing.T, v *process, words []string) {
	t.Helper()
	s := open(t, ucp.ThreadSingle)
	v.say("reach")
	address, err := hex.DecodeString(v.hear())
	require.NoError(t, err)
	v.say(s.address())
	v.say("go")
	theirs := v.hear()
	_, err = s.w.NewEndpoint(address, ucp.EndpointConfig{Eager: true})
	require.ErrorIs(t, err, ucp.ErrUnreachable)
	for _, word := range append(words, "shm/memory") {
		require.ErrorContains(t, err, word)
		require.Contains(t, theirs, word)
	}
	t.Logf("here:  %v", err)
	t.Logf("there: %s", theirs)
	began := time.Now()
	e, err := s.w.NewEndpoint(address, ucp.EndpointConfig{})
	require.NoError(t, err)
	require.ErrorIs(t, e.TagSendUint64(1, 1).Wait(bounded(t)), ucp.ErrUnreachable)
	require.ErrorIs(t, e.Flush().Wait(bounded(t)), ucp.ErrUnreachable)
	_, err = s.w.TagRecv(make([]byte, 8), 1, 1).Tie(e).Wait(bounded(t))
	require.ErrorIs(t, err, ucp.ErrUnreachable)
	require.NoError(t, e.Close())
	require.Less(t, time.Since(began), mostLate)
}

// TestSharedSocketDir: with a directory that both see, processes of different
// containers exchange everything; files stay neither there nor elsewhere.
func TestSharedSocketDir(t *testing.T) {
	for name, flags := range map[string]uintptr{"network": syscall.CLONE_NEWNET, "container": container} {
		t.Run(name, func(t *testing.T) {
			if name == "network" && os.Getuid() != 0 {
				t.Skip("only root makes a network namespace in which it may still copy from the other's memory")
			}
			dir := t.TempDir()
			t.Setenv(socketDirEnv, dir)
			v := apart(t, flags)
			s := open(t, ucp.ThreadSingle)
			meetApart(t, s, v, flags&syscall.CLONE_NEWPID == 0)
			require.NoError(t, s.x.Close())
			v.ends()
			requireNoTrace(t, dir)
		})
	}
}

// meetApart exchanges messages and memory with a peer in namespaces of its own.
// It sees the other's pid, and may copy from its memory, only if seen.
func meetApart(t *testing.T, s *node, v *process, seen bool) {
	ctx := bounded(t)
	v.say("guest")
	e := s.dial(t, v.hear())
	v.say(s.address())
	v.say("go")
	require.NoError(t, pingPong(ctx, s.w, e, 100))
	for _, kind := range []string{"allocated", "own"} {
		k, err := s.unpack(e, v.hear())
		require.NoError(t, err, kind)
		require.NoError(t, k.PutUint64(42, 8).Wait(ctx))
		n, err := k.GetUint64(8).Wait(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 42, n)
		require.NoError(t, k.Close())
	}
	allocated, err := s.x.Allocate(64, ucp.MemConfig{})
	require.NoError(t, err)
	own, err := s.x.Register(make([]byte, 64), ucp.MemConfig{})
	require.NoError(t, err)
	v.say(hex.EncodeToString(allocated.Key()))
	require.Equal(t, "<nil>", v.hear())
	require.EqualValues(t, 7, allocated.Load64(0))
	v.say(hex.EncodeToString(own.Key()))
	if answer := v.hear(); seen {
		require.Equal(t, "<nil>", answer)
		require.EqualValues(t, 7, own.Load64(0))
	} else {
		require.Contains(t, answer, "another pid namespace")
		t.Log(answer)
	}
	v.say("leave")
	_, err = s.w.TagRecv(make([]byte, 8), tagNever, allBits).Tie(e).Wait(ctx)
	require.ErrorIs(t, err, ucp.ErrPeerFailed)
	require.ErrorContains(t, err, "closed")
}

// TestKilledContainer: the death of a whole container is noticed as any other.
func TestKilledContainer(t *testing.T) {
	t.Setenv(socketDirEnv, t.TempDir())
	v := apart(t, container)
	before := takeCensus(t)
	s := open(t, ucp.ThreadSingle)
	v.say("serve")
	e := s.dial(t, v.hear())
	v.say(s.address())
	v.say("go")
	v.expect("serving")
	r := s.w.TagRecv(make([]byte, 8), tagNever, allBits).Tie(e)
	died := time.Now()
	require.NoError(t, v.cmd.Process.Kill())
	_, err := r.Wait(bounded(t))
	took := time.Since(died)
	require.ErrorIs(t, err, ucp.ErrPeerFailed)
	t.Logf("noticed after %v", took)
	require.Less(t, took, mostLate)
	require.NoError(t, s.x.Close())
	requireBack(t, before)
}
