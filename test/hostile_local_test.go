//go:build linux

package test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs/stats/live"
)

// roleBlocker connects to the victim, arms its worker, fills each descriptor by which it or
// the victim is woken, and makes it blocking. Then it does nothing more.
func roleBlocker(p *parent) {
	h := must(newNode(ucp.ThreadSingle, patience))
	e := must(h.connect(p.hear()))
	check(e.TagSendSync(checked(messageHead), tagCheck).Wait(context.Background()))
	e.TagSendSync(checked(messageHead), tagLate)
	must(h.w.EventFD())
	for h.w.Arm() != nil {
		h.w.Progress()
	}
	filled := 0
	for _, f := range must(os.ReadDir("/proc/self/fd")) {
		fd := must(strconv.Atoi(f.Name()))
		to, err := os.Readlink("/proc/self/fd/" + f.Name())
		if fd < 3 || err != nil || !strings.HasPrefix(to, "pipe:") && to != "anon_inode:[eventfd]" {
			continue
		}
		word := binary.NativeEndian.AppendUint64(nil, 1<<63)
		if strings.HasPrefix(to, "pipe:") {
			word = make([]byte, 4096)
		}
		check(unix.SetNonblock(fd, true))
		for n := 0; err == nil; n++ {
			_, err = unix.Write(fd, word)
		}
		if errors.Is(err, unix.EAGAIN) {
			filled++
		}
		check(unix.SetNonblock(fd, false))
	}
	p.say(filled)
	select {}
}

// TestBlockedWakeUp: a process of the same user that makes wake-up descriptors blocking
// blocks only itself, while it lives and after its death.
func TestBlockedWakeUp(t *testing.T) {
	t.Setenv(tlsEnv, "self,shm")
	v := startVictim(t)
	old := v.honest()
	old.send(t)
	for range 3 {
		b := start(t, "blocker")
		b.say(v.address)
		require.Positive(t, b.number(), "no descriptor was filled")
		v.newcomers(0)
		v.say("match")
		require.Equal(t, "matched", v.hear())
		old.send(t)
		b.kill()
		old.send(t)
		v.newcomers(0)
	}
}

// roleSockets connects to the victim's sockets, as often as it may, and keeps the connections open.
// It sends wrong messages on half of them.
func roleSockets(p *parent) {
	var pid int
	var during time.Duration
	var seed uint64
	check(scanLine(p.hear(), &pid, (*int64)(&during), &seed))
	rng := rand.New(rand.NewPCG(seed, 1))
	var held []int
	total := 0
	sockets := listening(pid)
	p.say(len(sockets))
	for began := time.Now(); time.Since(began) < during; {
		fd := must(unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0))
		if unix.Connect(fd, &unix.SockaddrUnix{Name: sockets[rng.IntN(len(sockets))]}) != nil {
			check(unix.Close(fd)) // the backlog is full
			time.Sleep(time.Millisecond)
			continue
		}
		total++
		for range rng.IntN(2) * (1 + rng.IntN(3)) {
			fds := wrongDescriptors(rng)
			_ = unix.Sendmsg(fd, wrongMessage(rng), unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL) // the victim may have closed it
			for _, f := range fds {
				check(unix.Close(f))
			}
		}
		if held = append(held, fd); len(held) > 3000 {
			check(unix.Close(held[0]))
			held = held[1:]
		}
	}
	p.say(total)
	p.hear()
}

// wrongMessage returns noise, or with noise in it a hello or a key request of docs/wire/shm.md.
func wrongMessage(rng *rand.Rand) []byte {
	b := make([]byte, 64+rng.IntN(236))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	const helloMagic, askMagic = 0x78637567, 0x51585547
	le := binary.LittleEndian
	switch rng.IntN(5) {
	case 0, 1: // a hello, of which lengths and descriptors do not fit
		b = b[:64]
		le.PutUint32(b, helloMagic)
		le.PutUint16(b[4:], 3)
		b[6], b[7] = 1, 0
		le.PutUint16(b[18:], 0)
		le.PutUint32(b[20:], 1<<rng.IntN(12))
		le.PutUint32(b[24:], 1<<rng.IntN(16))
		le.PutUint32(b[28:], le.Uint32(b[28:])|1)
		le.PutUint64(b[32:], 0)
	case 2: // a hello of another version, kind and length
		le.PutUint32(b, helloMagic)
		le.PutUint16(b[4:], 1)
		b[6] = byte(rng.IntN(7))
		le.PutUint32(b[20:], 1<<rng.IntN(32))
	case 3: // a key request
		b = b[:40]
		le.PutUint32(b, askMagic)
		copy(b[4:8], []byte{1, byte(rng.IntN(3)), 0, 0})
		clear(b[28:32])
	default:
		b = b[:1+rng.IntN(len(b))]
	}
	return b
}

// wrongDescriptors returns up to four descriptors that no honest peer sends.
func wrongDescriptors(rng *rand.Rand) (fds []int) {
	for range rng.IntN(5) {
		switch rng.IntN(3) {
		case 0:
			fds = append(fds, must(unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)))
		case 1:
			fds = append(fds, must(unix.Eventfd(0, unix.EFD_CLOEXEC)))
		case 2: // a segment, of the wrong length or not sealed
			m := must(unix.MemfdCreate("stranger", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))
			check(unix.Ftruncate(m, int64(rng.IntN(1<<16))))
			if rng.IntN(2) == 0 {
				must(unix.FcntlInt(uintptr(m), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL))
			}
			fds = append(fds, m)
		}
	}
	return fds
}

// listening returns the names of the sockets on which a process listens.
func listening(pid int) (names []string) {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	inodes := map[string]bool{}
	for _, fd := range must(os.ReadDir(dir)) {
		if to, err := os.Readlink(dir + fd.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
			inodes[strings.Trim(to, "socket:[]")] = true
		}
	}
	const flagListen, colFlags, colInode, colPath = "00010000", 3, 6, 7
	for line := range strings.Lines(string(must(os.ReadFile("/proc/net/unix")))) {
		if f := strings.Fields(line); len(f) > colPath && f[colFlags] == flagListen && inodes[f[colInode]] {
			names = append(names, f[colPath])
		}
	}
	return names
}

// TestSockets: connections to the sockets of shm that say nothing, or something wrong,
// keep no honest peer out and are forgotten.
func TestSockets(t *testing.T) {
	t.Setenv(tlsEnv, "self,shm")
	v := startVictim(t)
	old := v.honest()
	old.send(t)
	v.newcomers(0)
	memory, fds, during := v.memory(), descriptorsAtRest(t, v.process), attackTime()
	s := start(t, "sockets")
	s.say(pidOf(v.process), int64(during), seedOf(t))
	require.Equal(t, 2, s.number(), "sockets on which the victim listens: the worker's and the key server's")
	v.newcomers(during)
	old.send(t)
	t.Logf("%d connections in %v", s.number(), during)
	v.newcomers(0) // those that are open say nothing
	require.Less(t, v.memory()-memory, mostMemory)
	s.kill()
	require.Eventually(t, func() bool { return descriptors(t, v.process) <= fds }, patience, 10*time.Millisecond, "%d descriptors before", fds)
	old.send(t)
}

// roleList prints the programs of this user that show themselves.
func roleList(p *parent) {
	for _, f := range must(live.List(live.DefaultDir())) {
		p.say(f.PID)
	}
	p.say("end")
}

// TestPlantedDirectory: what another user has put in the place of the directory where programs
// show themselves is neither used nor followed, and keeps no program from running.
func TestPlantedDirectory(t *testing.T) {
	const other = 4712
	uid := os.Getuid()
	var as []func(*exec.Cmd)
	plants := map[string]func(at, elsewhere string) error{
		"link":          func(at, elsewhere string) error { return os.Symlink(elsewhere, at) },
		"dangling link": func(at, _ string) error { return os.Symlink("/nowhere", at) },
	}
	if uid == 0 { // the victim is another user, and this process its enemy
		uid = 4711
		as = append(as, func(c *exec.Cmd) {
			c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
			c.Dir = "/"
		})
		plants["directory"] = func(at, _ string) error {
			if err := os.Mkdir(at, 0o755); err != nil {
				return err
			}
			return os.Chown(at, other, other)
		}
		plants["open directory"] = func(at, _ string) error {
			if err := os.Mkdir(at, 0o755); err != nil {
				return err
			}
			return os.Chmod(at, 0o777)
		}
	}
	for name, plant := range plants {
		t.Run(name, func(t *testing.T) {
			tmp, err := os.MkdirTemp("", "goucx-hostile-") //nolint:usetesting // other users reach no directory of t.TempDir
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(tmp)) })
			require.NoError(t, os.Chmod(tmp, 0o777|os.ModeSticky))
			elsewhere := filepath.Join(tmp, "elsewhere")
			require.NoError(t, os.Mkdir(elsewhere, 0o700))
			require.NoError(t, os.Chmod(elsewhere, 0o777))
			require.NoError(t, plant(filepath.Join(tmp, fmt.Sprintf("goucx-%d", uid)), elsewhere))
			t.Setenv("TMPDIR", tmp)
			t.Setenv("UCX_STATS_DEST", "unix")
			t.Setenv(tlsEnv, "self,shm")
			var said bytes.Buffer
			v := startVictim(t, append(as, func(c *exec.Cmd) { c.Stderr = &said })...)
			l := start(t, "list", as...)
			require.Equal(t, fmt.Sprint(v.cmd.Process.Pid), l.hear())
			require.Equal(t, "end", l.hear())
			v.kill()
			require.Contains(t, said.String(), fmt.Sprintf("goucx-%d", uid), "the warning names the directory")
			left, err := os.ReadDir(elsewhere)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}
