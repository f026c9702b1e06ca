package ucttest

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

// roleVariable in the environment makes the test binary the second process.
const roleVariable = "GOUCX_UCTTEST_CHILD"

func isChild() bool { return os.Getenv(roleVariable) != "" }

// controlMsg is a message between the two processes: a command or its reply.
type controlMsg struct {
	Op            string
	Device, Iface []byte
	Key           []byte
	Base          uint64
	Kind          kind
	N             uint64
	Data          []byte
	Err           string
}

func (n *controlMsg) address() uct.Address { return uct.Address{Device: n.Device, Iface: n.Iface} }

// process is a second process with its own iface, which executes commands.
type process struct {
	env     *env
	cmd     *exec.Cmd
	to      *os.File
	replies chan controlMsg // replies; closed when the process has exited
	exited  chan struct{}
	addr    uct.Address
	output  bytes.Buffer // its output, valid after exited
}

// spawn runs the test binary again, until the end of the case.
func (e *env) spawn() *process {
	e.Helper()
	top, _, _ := strings.Cut(e.Name(), "/")
	cmd := exec.Command(os.Args[0], "-test.run=^"+regexp.QuoteMeta(top)+"$", "-test.count=1", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), roleVariable+"=1")
	fromParent, to, err := os.Pipe()
	require.NoError(e, err)
	from, toParent, err := os.Pipe()
	require.NoError(e, err)
	cmd.ExtraFiles = []*os.File{fromParent, toParent}
	p := &process{env: e, cmd: cmd, to: to, replies: make(chan controlMsg, 1), exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	require.NoError(e, cmd.Start())
	_, _ = fromParent.Close(), toParent.Close()
	go p.read(from)
	e.Cleanup(p.end)
	a := p.call(controlMsg{Op: "address"})
	p.addr = a.address()
	return p
}

// read forwards replies until the process has exited.
func (p *process) read(from *os.File) {
	defer close(p.exited)
	for d := json.NewDecoder(from); ; {
		var n controlMsg
		if d.Decode(&n) != nil {
			break
		}
		p.replies <- n
	}
	close(p.replies)
	_ = from.Close()
	_ = p.cmd.Wait() // its output shows why it exited
}

// end lets the process exit, or kills it.
func (p *process) end() {
	_ = p.to.Close() // ends its command loop
	go func() {
		for range p.replies { // unread replies
		}
	}()
	select {
	case <-p.exited:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.exited
		p.env.Errorf("second process had to be killed")
	}
	if p.env.Failed() && p.output.Len() > 0 {
		p.env.Logf("second process:\n%s", &p.output)
	}
}

// kill ends the process at once, like a crash.
func (p *process) kill() {
	p.env.Helper()
	require.NoError(p.env, p.cmd.Process.Kill())
	<-p.exited
}

// send sends a command without waiting for the reply.
func (p *process) send(n controlMsg) {
	p.env.Helper()
	require.NoError(p.env, json.NewEncoder(p.to).Encode(n), "%s", n.Op)
}

// call sends a command and progresses nodes until the reply arrives.
func (p *process) call(n controlMsg, nodes ...*node) controlMsg {
	p.env.Helper()
	p.send(n)
	return p.awaitReply(n.Op, nodes...)
}

// awaitReply progresses nodes until the reply to op arrives.
func (p *process) awaitReply(op string, nodes ...*node) (got controlMsg) {
	p.env.Helper()
	come := false
	p.env.until("the second process's reply to "+op, func() bool {
		select {
		case got, come = <-p.replies:
			if !come {
				p.env.Fatalf("second process has exited at %s", op)
			}
		default:
		}
		return come
	}, nodes...)
	require.Equal(p.env, op, got.Op)
	require.Empty(p.env, got.Err, "second process: %s", op)
	return got
}

// pairWith returns an iface that reaches p's iface, both ways; else it ends the case.
func (e *env) pairWith(p *process) (*node, *link) {
	e.Helper()
	a := e.node()
	if reachable, reason := a.iface.Reachable(p.addr); !reachable {
		e.notApplicable("another process is not reachable: " + reason)
	}
	return a, a.join(p)
}

// join connects n and p's iface, both ways.
func (n *node) join(p *process) *link {
	n.env.Helper()
	own := n.address()
	p.call(controlMsg{Op: "connect", Device: own.Device, Iface: own.Iface}, n)
	return n.env.dial(n, n, p.addr)
}

// child is the state of the second process.
type child struct {
	node      *node
	link      *link
	send      *sender
	sending   uint64 // the number of the last message to send
	got       sequence
	echo      bool
	unsent    []message // not yet echoed
	mem       uct.Mem
	out       *json.Encoder
	owesReply bool // the reply to "send" is outstanding
}

// commands reads notes on a goroutine; the main goroutine progresses.
func commands(r io.Reader) <-chan controlMsg {
	ch := make(chan controlMsg)
	go func() {
		defer close(ch)
		for d := json.NewDecoder(r); ; {
			var n controlMsg
			if d.Decode(&n) != nil {
				return
			}
			ch <- n
		}
	}()
	return ch
}
