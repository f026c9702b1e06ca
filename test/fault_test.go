//go:build linux

package test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// mostLate is how long after its peer's death a request may end. It takes milliseconds
// where the machine is idle, and over 10 s where only a time-out shows the death.
const mostLate = 5 * time.Second

// moment is one in which the peer is killed.
type moment struct {
	name string
	peer string // what it does
	// bring leads to the moment. The test then kills the peer and calls what is
	// given back, for the errors of all that the death must end.
	bring func(*survivor) func() []error
}

var moments = []moment{
	{"idle, the survivor connected", "echo", idleOurs},
	{"idle, the peer connected", "stream", idleTheirs},
	{"ping-pong, the survivor begins", "echo", pingOurs},
	{"ping-pong, the peer begins", "ping", pingTheirs},
	{"tied receives, connected", "echo", tiedReceives},
	{"tied receives, never sent", "serve", tiedUnconnected},
	{"tied receives, only the peer sent", "stream", tiedToSender},
	{"receiver of a stream", "silent", streamOurs},
	{"sender of a stream", "stream", streamTheirs},
	{"receiver of a long message", "half recv", longOurs},
	{"sender of a long message", "half send", longTheirs},
	{"sender of a long unexpected message", "half send", longUnexpected},
	{"owner of allocated memory", "allocated", accessOurs},
	{"owner of its own memory", "own", accessOurs},
	{"user of memory", "access", accessTheirs},
	{"receiver that holds up a flush", "silent", flushOurs},
	{"sender that waits for a flush", "flushing", flushTheirs},
	{"before it accepts", "silent", beforeAccept},
	{"before it is accepted", "greet", beforeAccepted},
}

// TestKilledPeer: whatever two processes are doing, when one is killed each
// request of the other ends with the reason, in time, and nothing stays behind.
func TestKilledPeer(t *testing.T) {
	b := newBystander(t)
	for name, mode := range map[string]ucp.ThreadMode{"single": ucp.ThreadSingle, "multi": ucp.ThreadMulti} {
		for _, f := range moments {
			t.Run(name+"/"+f.name, func(t *testing.T) { killed(t, mode, f, b) })
		}
	}
}

func killed(t *testing.T, mode ucp.ThreadMode, f moment, b *bystander) {
	before := takeCensus(t)
	s := newSurvivor(t, mode, f.peer)
	s.meetBystander(b)
	s.peer.say("go")
	after := f.bring(s)
	for _, pid := range []string{"self", pidOf(s.peer)} {
		require.Empty(t, maps(t, pid, "/dev/shm"), "what a kill would leave behind")
	}
	s.died = time.Now()
	require.NoError(t, s.peer.cmd.Process.Kill())
	for i, err := range after() {
		assert.ErrorIs(t, err, ucp.ErrPeerFailed, "request %d", i)
	}
	s.requireDead()
	s.part()
	s.peer.kill()
	if s.exposed {
		before.exposed()
	}
	requireBack(t, before)
	requireNoTrace(t)
}
