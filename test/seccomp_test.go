//go:build linux

package test

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/ucp"
)

// denyEnv names the denial under which this binary executes its arguments.
const denyEnv = "GOUCX_TEST_DENY"

// deniedCall is a system call that is refused, or only where an argument has a
// value.
type deniedCall struct {
	number uint32
	arg    uint32 // the value of the third one, if not 0
}

// denial is what a seccomp profile refuses, and what then holds.
type denial struct {
	name            string
	calls           []deniedCall
	why             string // in what ucx_info --why says of the system; empty: nothing is missing
	noShm           string // why shm does not work, if so
	noCopy, noWrite bool   // memory that the program has allocated is not reached
	heap            string // how ucx_info --why says that long messages from the heap get to a peer; empty: as without a filter
}

const soPeerPidfd = 77

var denials = []denial{
	{name: "membarrier", calls: []deniedCall{{unix.SYS_MEMBARRIER, 0}}, why: "membarrier-global"},
	{name: "pidfd_open", calls: []deniedCall{{unix.SYS_PIDFD_OPEN, 0}}, why: "pidfd_open"},
	{name: "all pidfds", calls: []deniedCall{{unix.SYS_PIDFD_OPEN, 0}, {unix.SYS_GETSOCKOPT, soPeerPidfd}}, why: "so_peerpidfd"},
	{name: "memfd_create", calls: []deniedCall{{unix.SYS_MEMFD_CREATE, 0}}, why: "memfd", noShm: "memfd"},
	{
		name: "process_vm", calls: []deniedCall{{unix.SYS_PROCESS_VM_READV, 0}, {unix.SYS_PROCESS_VM_WRITEV, 0}}, why: "process_vm", noCopy: true,
		heap: "65537..(inf)   through the ring, copied by the sender and by the receiver: this process has a seccomp filter: ",
	},
	{
		name: "process_vm_writev", calls: []deniedCall{{unix.SYS_PROCESS_VM_WRITEV, 0}}, why: "process_vm", noWrite: true,
		heap: "6145..(inf)    copied by the receiver with process_vm_readv: its sender can copy nothing: this process has a seccomp filter: process_vm_writev",
	},
	{name: "madvise", calls: []deniedCall{{unix.SYS_MADVISE, 0}}},
	{name: "fstatfs", calls: []deniedCall{{unix.SYS_FSTATFS, 0}, {unix.SYS_STATFS, 0}}},
	{name: "sendmsg", calls: []deniedCall{{unix.SYS_SENDMSG, 0}}, why: "sendmsg", noShm: "sendmsg"},
}

// packetDenials refuse one of the calls by which packets are sent and received.
var packetDenials = []denial{
	{name: "sendto", calls: []deniedCall{{unix.SYS_SENDTO, 0}}},
	{name: "sendmsg", calls: []deniedCall{{unix.SYS_SENDMSG, 0}}},
	{name: "sendmmsg", calls: []deniedCall{{unix.SYS_SENDMMSG, 0}}},
	{name: "recvmsg", calls: []deniedCall{{unix.SYS_RECVMSG, 0}}},
	{name: "recvmmsg", calls: []deniedCall{{unix.SYS_RECVMMSG, 0}}},
}

func denialOf(name string) (d denial, errno syscall.Errno) {
	for _, d := range append(denials, packetDenials...) {
		for _, errno := range []syscall.Errno{unix.EPERM, unix.ENOSYS} {
			if name == d.under(errno) {
				return d, errno
			}
		}
	}
	check(fmt.Errorf("no denial %q", name))
	return d, 0
}

// under names the denial with the error that its calls answer.
func (d denial) under(errno syscall.Errno) string { return d.name + " " + unix.ErrnoName(errno) }

// program is the filter: the number of the call, then for some its third argument.
func (d denial) program(errno syscall.Errno) (f []unix.SockFilter) {
	const offNumber, offArg2, load, equal, ret = 0, 32, unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	refuse := unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	for _, c := range d.calls {
		f = append(f, unix.SockFilter{Code: load, K: offNumber})
		if c.arg == 0 {
			f = append(f, unix.SockFilter{Code: equal, K: c.number, Jf: 1}, refuse)
			continue
		}
		f = append(f, unix.SockFilter{Code: equal, K: c.number, Jf: 3},
			unix.SockFilter{Code: load, K: offArg2}, unix.SockFilter{Code: equal, K: c.arg, Jf: 1}, refuse)
	}
	return append(f, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
}

// executeDenied is what this binary does where denyEnv is set.
func executeDenied(name string) {
	check(os.Unsetenv(denyEnv))
	if scope, is := strings.CutPrefix(name, yamaDenial); is {
		makeUpYama(scope)
	} else {
		d, errno := denialOf(name)
		check(installFilter(d.program(errno)))
	}
	args := os.Args
	if len(args) > 1 {
		args = args[1:]
	} else {
		args[0] = "/proc/self/exe"
	}
	check(syscall.Exec(args[0], args, os.Environ()))
}

// TestSeccomp: under profiles that refuse what shm is made of, everything works, or
// is refused with the reason, which ucx_info tells.
func TestSeccomp(t *testing.T) {
	withinHost(t)
	for _, d := range denials {
		for _, errno := range []syscall.Errno{unix.EPERM, unix.ENOSYS} {
			name := d.under(errno)
			t.Run(name+"/why", func(t *testing.T) { deniedWhy(t, d, errno) })
			t.Run(name+"/one", func(t *testing.T) { deniedOne(t, d, errno) })
			for _, by := range []string{"tag", "am", "put"} {
				t.Run(name+"/all, "+by, func(t *testing.T) { deniedAll(t, d, name, by) })
			}
			if d.heap != "" || d.name == "all pidfds" {
				t.Run(name+"/long, heap", func(t *testing.T) { deniedLong(t, name, "heap") })
				t.Run(name+"/long, host", func(t *testing.T) { deniedLong(t, name, "host") })
			}
		}
	}
}

// TestSeccompPackets: where a call is refused that packets need, rc and ud are not there
// from the start, with the reason. Another transport serves, if there is one.
func TestSeccompPackets(t *testing.T) {
	for _, d := range packetDenials {
		for _, errno := range []syscall.Errno{unix.EPERM, unix.ENOSYS} {
			name := d.under(errno)
			t.Run(name+"/why", func(t *testing.T) {
				c := denied(t, name, append(os.Environ(), "UCX_TLS=self,rc,ud"), built(t, "ucx_info"), "--why", "-P", "intra")
				c.End(patience)
				said := c.Out.String() + c.Err.String()
				t.Logf("%s", said)
				require.Contains(t, said, d.name+": "+errno.Error())
			})
			for _, tls := range []string{"self,rc", "self,ud"} {
				t.Run(name+"/"+tls, func(t *testing.T) {
					began := time.Now()
					for _, c := range deniedRing(t, name, "tag", tlsEnv+"="+tls) {
						require.Equal(t, 1, c.End(patience))
						require.Contains(t, c.Err.String(), "refuses "+d.name+": "+errno.Error())
					}
					require.Less(t, time.Since(began), 10*time.Second)
				})
			}
		}
	}
	for _, name := range []string{"sendmmsg EPERM", "recvmmsg EPERM", "memfd_create EPERM"} {
		t.Run(name+"/all", func(t *testing.T) {
			for _, c := range deniedRing(t, name, "tag", tlsEnv+"=all") {
				require.Zero(t, c.End(patience), "%s", &c.Err)
				require.Contains(t, c.Out.String(), "all right")
			}
		})
	}
}

// denied starts a command under a denial.
func denied(t *testing.T, name string, env []string, path string, args ...string) *suitetest.Command {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return runIn(t, append(env, denyEnv+"="+name), self, append([]string{path}, args...)...)
}

func deniedWhy(t *testing.T, d denial, errno syscall.Errno) {
	c := denied(t, d.under(errno), append(os.Environ(), "UCX_SHM_FETCH_THRESH=6k"), built(t, "ucx_info"), "--why", "-P", "intra")
	require.Zero(t, c.End(patience), "%s", &c.Err)
	if d.why != "" {
		assert.Contains(t, c.Out.String(), d.why)
		assert.Contains(t, c.Out.String(), errno.Error())
	}
	if d.noShm != "" {
		assert.Contains(t, c.Out.String(), d.noShm)
	}
	heap := d.heap
	if heap == "" {
		heap = "6145..(inf)    copied by the receiver with process_vm_readv, and by the sender too while it polls: the system permits it"
	}
	if d.noShm == "" && d.name != "all pidfds" {
		assert.Contains(t, c.Out.String(), "#     tag heap      "+heap)
		assert.Contains(t, c.Out.String(), "#     tag allocated 2049..(inf)    copied by the receiver from its mapping of the memory")
	}
	t.Logf("%s", &c.Out)
}

// deniedLong exchanges long messages between two processes under the denial, and verifies them.
func deniedLong(t *testing.T, name, memory string) {
	port := suitetest.FreePort(t)
	args := []string{"-p", port, "-t", "tag_lat", "-m", memory, "-s", "262145", "-n", "50", "-V", "-f"}
	server := denied(t, name, os.Environ(), built(t, "ucx_perftest"), "-p", port)
	client := denied(t, name, os.Environ(), built(t, "ucx_perftest"), append([]string{"127.0.0.1"}, args...)...)
	require.Zero(t, client.End(patience), "%s", &client.Err)
	require.Zero(t, server.End(patience), "%s", &server.Err)
	require.Contains(t, client.Out.String(), "shm/memory")
}

// deniedRing starts an example whose processes are all under the denial.
func deniedRing(t *testing.T, name, by string, env ...string) (ranks []*suitetest.Command) {
	env = append(append(os.Environ(), "JOB_DIR="+t.TempDir(), "JOB_SIZE=3"), env...)
	for rank := range 3 {
		ranks = append(ranks, denied(t, name, append(slices.Clip(env), fmt.Sprint("JOB_RANK=", rank)), built(t, "ring"), "--by", by))
	}
	return ranks
}

func deniedAll(t *testing.T, d denial, name, by string) {
	for _, c := range deniedRing(t, name, by) {
		if d.noShm != "" {
			require.Equal(t, 1, c.End(patience))
			require.Contains(t, c.Err.String(), d.noShm)
			continue
		}
		require.Zero(t, c.End(patience), "%s", &c.Err)
		require.Contains(t, c.Out.String(), "all right")
	}
}

// deniedOne has this process, which is not under it, and one under the denial use
// each other's memory, and notice the other's death.
func deniedOne(t *testing.T, d denial, errno syscall.Errno) {
	v := start(t, "peer", func(c *exec.Cmd) { c.Env = append(c.Env, denyEnv+"="+d.under(errno)) })
	if d.noShm != "" {
		requireRefused(t, v, []string{"shm"})
		return
	}
	ctx := bounded(t)
	s := open(t, ucp.ThreadSingle)
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
	}
	allocated, err := s.x.Allocate(64, ucp.MemConfig{})
	require.NoError(t, err)
	own, err := s.x.Register(make([]byte, 64), ucp.MemConfig{})
	require.NoError(t, err)
	v.say(hex.EncodeToString(allocated.Key()))
	require.Equal(t, "<nil>", v.hear())
	v.say(hex.EncodeToString(own.Key()))
	switch answer := v.hear(); {
	case d.noWrite:
		require.Equal(t, "put to ", answer[:7])
		require.Contains(t, answer, "unsupported operation")
	case d.noCopy:
		require.Contains(t, answer, "process_vm")
		require.Contains(t, answer, errno.Error())
		t.Log(answer)
	default:
		require.Equal(t, "<nil>", answer)
	}
	r := s.w.TagRecv(make([]byte, 8), tagNever, allBits).Tie(e)
	died := time.Now()
	v.kill()
	_, err = r.Wait(ctx)
	require.ErrorIs(t, err, ucp.ErrPeerFailed)
	require.Less(t, time.Since(died), mostLate)
}
