package ucttest

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/uct"
)

// Descriptors that the second process inherits.
const (
	commandFD = 3
	replyFD   = 4
)

// serve is the main loop of the second process. It opens an iface and executes commands until the
// first process closes the pipe.
func serve(t *testing.T, f Factory) {
	in, out := os.NewFile(commandFD, "commands"), os.NewFile(replyFD, "answers")
	e := &env{TB: t, factory: f}
	c := &child{node: e.node(), out: json.NewEncoder(out)}
	c.node.mayFail = true // the first process may exit first
	c.node.onMessage = c.receive
	c.node.onPending = func(ts []uct.Token) int { return len(ts) }
	idle := 0
	for notes := commands(in); ; {
		select {
		case n, more := <-notes:
			if !more {
				return
			}
			c.execute(&n)
		default:
			if idle++; c.work() > 0 {
				idle = 0
			} else if idle == yieldPasses {
				idle = 0
				cpu.Yield()
			}
		}
	}
}

// work progresses the iface and sends pending messages.
func (c *child) work() int {
	n := 0
	if !c.node.closed {
		n = progress(c.node)
	}
	for len(c.unsent) > 0 {
		m := c.unsent[0]
		if st := c.link.AMShort(m.id, m.header, m.data); st == noResource {
			break
		}
		c.unsent = c.unsent[1:]
		n++
	}
	for c.send != nil && c.send.number < c.sending {
		if c.send.send(1) == noResource {
			break
		}
		n++
	}
	if c.owesReply && c.send.number == c.sending && c.node.inFlight() == 0 {
		c.owesReply = false
		c.reply(controlMsg{Op: "send"})
	}
	return n
}

// receive checks a message of the first process, or echoes it.
func (c *child) receive(m message) {
	if c.echo {
		m.data = slices.Clone(m.data)
		c.unsent = append(c.unsent, m)
		return
	}
	c.got.take(c.node, m)
}

func (c *child) reply(n controlMsg) { require.NoError(c.node.env, c.out.Encode(n)) }

// execute executes one command and replies to it. The reply to "send" follows when the messages
// are sent; "exit" has no reply.
func (c *child) execute(n *controlMsg) {
	e, reply := c.node.env, controlMsg{Op: n.Op}
	switch n.Op {
	case "address":
		a := c.node.address()
		reply.Device, reply.Iface = a.Device, a.Iface
	case "connect":
		c.link = e.dial(c.node, c.node, n.address())
	case "echo":
		c.echo = true
	case "send":
		if c.send == nil {
			c.send = newSender(c.link, 9)
		}
		c.sending, c.owesReply = n.N, true
		return
	case "received":
		reply.N = c.got.next
	case "region":
		r := e.memory(c.node, n.Kind, int(n.N), uct.MemRemote)
		fill(r.Bytes(), 1)
		c.mem = r
		reply.Key, reply.Base = r.AppendKey(nil), addressOf(r.Bytes())
	case "bytes":
		for range yieldPasses { // the race detector does not see that a flush of the other process orders these accesses
			progress(c.node)
		}
		reply.Data = c.mem.Bytes()
	case "expose": // as exposure n.Base
		var mem uct.Mem
		p := make([]byte, n.N)
		if n.Kind != heap {
			mem = e.memory(c.node, n.Kind, int(n.N), uct.MemRemote)
			p = mem.Bytes()
		}
		fill(p, 1)
		c.node.copying = true
		require.Equal(e, ok, c.link.post(func() uct.Status { return c.link.Endpoint.(uct.Exposer).Expose(n.Base, p, mem) }))
	case "withdraw":
		reply.N = uint64(c.link.Endpoint.(uct.Exposer).Withdraw(n.Base))
	case "revoke":
		c.mem.Revoke()
	case "add":
		reply.Err = c.add(n)
	case "close":
		c.link.Close()
		require.NoError(e, c.node.close())
	default:
		reply.Err = "unknown command"
	}
	if c.node.env.Failed() {
		reply.Err += "failed, see its output"
	}
	c.reply(reply)
}

// add executes n.N fetching adds on the first process's word.
func (c *child) add(n *controlMsg) string {
	r := &region{user: c.node, base: n.Base, key: c.node.env.unpack(c.node, n.Key)}
	for range n.N {
		if _, err := c.link.blocking(r, uct.AtomicAdd, 1, 0, 0); err != nil {
			return err.Error()
		}
	}
	return ""
}
