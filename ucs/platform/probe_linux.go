package platform

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs/shmem"
)

const probeSize = 4096

func probe() []Feature {
	pair, err := connectSelf()
	defer pair.close()
	return []Feature{
		featureOf(Memfd, tryMemfd()),
		featureOf(AbstractSockets, err),
		featureOf(FDPassing, TryFDPassing()),
		featureOf(EventFD, tryEventFD()),
		featureOf(GlobalBarrier, shmem.GlobalBarrier()),
		featureOf(PrivateBarrier, shmem.PrivateBarrier()),
		featureOf(PidfdOpen, tryPidfd()),
		featureOf(PeerPidfd, pair.tryPeerPidfd(err)),
		tryCopy(),
	}
}

// tryMemfd creates a segment and maps a duplicate of its descriptor, as a receiver does.
func tryMemfd() error {
	s, err := shmem.Create("goucx-probe", probeSize)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // an error does not matter to a probe
	fd, err := unix.FcntlInt(uintptr(s.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate a descriptor: %w", err)
	}
	other, err := shmem.Map(fd, probeSize)
	if err != nil {
		shmem.CloseFDs(fd)
		return err
	}
	return other.Close()
}

// pair is a connection of this process to itself.
type pair struct{ a, b *shmem.Conn }

func connectSelf() (p pair, err error) {
	name := "@goucx-probe-" + rand.Text()
	l, err := shmem.Listen(name)
	if err != nil {
		return p, err
	}
	defer func() { _ = l.Close() }() // an abstract name needs no cleanup
	if p.a, err = shmem.Dial(name); err != nil {
		return p, err
	}
	p.b, err = l.Accept()
	return p, err
}

func (p pair) close() {
	for _, c := range []*shmem.Conn{p.a, p.b} {
		if c != nil {
			_ = c.Close() // an error does not matter to a probe
		}
	}
}

// TryFDPassing sends a descriptor through a socket pair, at each call. The error names the
// call that the system refused.
func TryFDPassing() error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	defer shmem.CloseFDs(fds[:]...)
	if err := unix.Sendmsg(fds[0], []byte{0}, unix.UnixRights(fds[0]), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err != nil {
		return fmt.Errorf("sendmsg with a descriptor: %w", err)
	}
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(fds[1], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return fmt.Errorf("recvmsg: %w", err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return err
	}
	if len(msgs) != 1 { // dropped by a security module, or the limit of open files
		return errors.New("recvmsg: the descriptor did not arrive: forbidden, or the limit of open files is reached")
	}
	got, err := unix.ParseUnixRights(&msgs[0])
	shmem.CloseFDs(got...)
	return err
}

func tryEventFD() error {
	e, err := shmem.NewEventFD()
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }() // an error does not matter to a probe
	if err := e.Signal(); err != nil {
		return err
	}
	if !e.Drain() {
		return errors.New("the signal was lost")
	}
	return nil
}

func tryPidfd() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	return unix.Close(fd)
}

// tryPeerPidfd calls getsockopt itself, since Conn.PeerPidfd has a fallback.
func (p pair) tryPeerPidfd(connected error) error {
	if connected != nil {
		return fmt.Errorf("no connection to try it on: %w", connected)
	}
	fd, err := unix.GetsockoptInt(p.b.FD(), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return fmt.Errorf("getsockopt SO_PEERPIDFD: %w", err)
	}
	return unix.Close(fd)
}

// tryCopy tries the copies with this process's own memory, which are always permitted if the system calls are.
// Whether Yama forbids access to other processes is only visible in its setting.
func tryCopy() Feature {
	f := featureOf(CrossProcessCopy, errors.Join(copySelf(shmem.ProcessRead), copySelf(shmem.ProcessWrite)))
	if scope := readLine(ptraceScope); f.Available && scope != "" && scope != "0" {
		f.Reason = "between unrelated processes only with CAP_SYS_PTRACE: kernel.yama.ptrace_scope is " + scope
	}
	return f
}

func inode(name string) uint64 {
	st, err := os.Stat(name)
	if err != nil {
		return 0
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Ino
	}
	return 0
}
