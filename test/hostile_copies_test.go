//go:build linux

package test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucp"
)

// Kinds of messages of docs/wire/shm.md.
const (
	copyTableMessage  = 13
	copyRegionMessage = 14
)

// roleCopies connects to the victim again and again. On each connection it sends copy tables and regions that are wrong
// in some way, or too many.
func roleCopies(p *parent) {
	var address string
	var during time.Duration
	var seed uint64
	check(scanLine(p.hear(), &address, (*int64)(&during), &seed))
	rng := rand.New(rand.NewPCG(seed, 2))
	x := must(newNode(ucp.ThreadSingle, 100*time.Millisecond))
	connections, messages := 0, 0
	for began := time.Now(); time.Since(began) < during; connections++ {
		h := &node{x: x.x, w: must(x.x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle}))}
		e := must(h.connect(address))
		check(e.TagSendSync(checked(messageHead), tagCheck).Wait(context.Background()))
		sock := connectedSocket()
		many := rng.IntN(2) == 0 // nothing wrong with them, each
		for range 1 + rng.IntN(300) {
			m, fds := copyMessage(rng, many)
			err := unix.Sendmsg(sock, m, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
			for _, f := range fds {
				check(unix.Close(f))
			}
			if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ETOOMANYREFS) {
				break // the victim has hung up
			}
			messages++
		}
		for range 1000 {
			h.w.Progress()
		}
		e.Abort(nil)
		_ = h.w.Close() // the victim may have hung up
	}
	p.say(connections, messages)
	p.hear()
}

// connectedSocket returns the socket of this process that is connected to another one.
func connectedSocket() int {
	found := -1
	for _, f := range must(os.ReadDir("/proc/self/fd")) {
		fd := must(strconv.Atoi(f.Name()))
		kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		if err != nil || kind != unix.SOCK_SEQPACKET {
			continue
		}
		if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && cred.Pid != 0 && int(cred.Pid) != os.Getpid() {
			found = fd
		}
	}
	if found < 0 {
		check(errors.New("no socket leads to the victim"))
	}
	return found
}

// copyMessage returns a COPY_REGION or a COPY_TABLE. A right one is a region that no other one of the connection is equal to.
func copyMessage(rng *rand.Rand, right bool) (m []byte, fds []int) {
	const tableBytes, keysBytes = 16 << 10, 4 << 20
	file := func(n int64) int {
		fd := must(unix.MemfdCreate("region", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))
		check(unix.Ftruncate(fd, n))
		if right || rng.IntN(8) != 0 {
			must(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL))
		}
		return fd
	}
	le := binary.LittleEndian
	m = make([]byte, 64, 92)
	le.PutUint32(m, 0x78637567)
	m[4], m[5], m[6] = 3, 16, copyRegionMessage
	n := int64(1) << rng.IntN(41)
	if !right && rng.IntN(3) == 0 {
		m[6] = copyTableMessage
		fds = append(fds, file(tableBytes))
	} else {
		m = le.AppendUint32(m, rng.Uint32())
		m = le.AppendUint64(m, rng.Uint64()|1)
		m = le.AppendUint64(m, rng.Uint64())
		m = le.AppendUint64(m, uint64(n))
		fds = append(fds, file(n), file(keysBytes))
	}
	if right {
		return m, fds
	}
	switch rng.IntN(5) {
	case 0:
		m[rng.IntN(len(m))] ^= 1 << rng.IntN(8)
	case 1:
		m = m[:1+rng.IntN(len(m))]
	case 2:
		fds = append(fds, wrongDescriptors(rng)...)
	case 3:
		check(unix.Close(fds[0]))
		fds = fds[1:]
	default: // the second COPY_TABLE of the connection is wrong too
	}
	return m, fds
}

// TestHostileCopies: copy tables and regions that are wrong in any way harm only their sender, and many of them
// neither fill the victim's memory nor its address space.
func TestHostileCopies(t *testing.T) {
	withinHost(t)
	v := startVictim(t)
	old := v.honest()
	old.send(t)
	v.newcomers(0)
	memory, fds, mappings, during := v.memory(), descriptorsAtRest(t, v.process), len(maps(t, pidOf(v.process), "memfd:")), attackTime()
	h := start(t, "copies")
	h.say(v.address, int64(during), seedOf(t))
	v.newcomers(during)
	old.send(t)
	var connections, messages int
	h.scan(&connections, &messages)
	t.Logf("%d connections, %d messages", connections, messages)
	require.Greater(t, connections, 3)
	v.newcomers(0)
	require.Less(t, v.memory()-memory, mostMemory)
	h.kill()
	require.Eventually(t, func() bool {
		return descriptors(t, v.process) <= fds && len(maps(t, pidOf(v.process), "memfd:")) <= mappings
	}, patience, 10*time.Millisecond, "%d descriptors and %d mappings before", fds, mappings)
	old.send(t)
}
