package main

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

// openRun returns a run whose memory is allocated, without a peer.
func openRun(t *testing.T, line string, sameProgram bool) *run {
	t.Helper()
	e, err := openEndpoint(planOf(t, line))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.close()) })
	require.NoError(t, e.createQueues())
	r := &run{endpoint: e, cycle: pageSize, line: 64, sameProgram: sameProgram}
	require.NoError(t, r.allocate())
	return r
}

// TestWrongMemory: each kind of wrong byte in the memory that a peer accesses is found.
func TestWrongMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		line string
		same bool
		want string
	}{
		"WRITE of an rdmapeer":       {"-n 100 -s 100 ib_write_bw", true, "message 96"},
		"WRITE of a foreign peer":    {"-n 100 -s 100 ib_write_bw", false, "not written"},
		"atomic":                     {"-n 100 ib_atomic_bw", false, "add up to 0"},
		"compare and swap":           {"-n 100 -A CMP_AND_SWAP ib_atomic_bw", true, "add up to 0"},
		"memory that is only read":   {"-n 100 ib_read_bw", false, ""},
		"client's memory":            {"-n 100 ib_write_bw localhost", true, ""},
		"foreign compare and swap":   {"-n 100 -A CMP_AND_SWAP ib_atomic_bw", false, ""},
		"memory of a write latency ": {"-n 100 ib_write_lat", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := openRun(t, tc.line, tc.same)
			err := r.checkArea()
			if tc.want == "" {
				require.NoError(t, err)
				area := r.area.Bytes()[r.areaStride*(r.plan.qps-1):]
				area[r.areaSize] = 1 // the first byte behind
				err = r.checkArea()
				assert.ErrorContains(t, err, "behind what was announced")
			} else {
				assert.ErrorContains(t, err, tc.want)
			}
			assert.ErrorIs(t, err, errData)
		})
	}
	r := openRun(t, "-n 100 ib_read_bw", false)
	r.area.Bytes()[77]++
	assert.ErrorContains(t, r.checkArea(), "byte 77")
}

// TestRightMemory: what the peer of each kind leaves is accepted.
func TestRightMemory(t *testing.T) {
	r := openRun(t, "-n 100 -s 100 ib_write_bw", true)
	for k := range r.plan.iters {
		copy(r.area.Bytes()[r.remoteOffset(k):], r.remote.message(0, k, r.plan.size))
	}
	require.NoError(t, r.checkArea())
	assert.Equal(t, pageSize/128, r.verified)

	r = openRun(t, "-n 100 ib_atomic_bw", false)
	for k := range r.plan.iters {
		r.area.Bytes()[r.remoteOffset(k)]++
	}
	require.NoError(t, r.checkArea())
}

// TestWrongMessages: a received message with a wrong byte, or in the wrong order, is found.
func TestWrongMessages(t *testing.T) {
	l := &lane{}
	r := openRun(t, "-n 100 -s 3000 ib_send_bw", true)
	b := append([]byte{}, r.remote.message(0, 5, 3000)...)
	require.NoError(t, r.checkMessage(l, 5, b))
	assert.ErrorIs(t, r.checkMessage(l, 6, b), errData)
	b[2999]++
	assert.ErrorContains(t, r.checkMessage(l, 5, b), "byte 2999")

	r = openRun(t, "-n 100 -s 1000 ib_send_bw", false)
	require.Equal(t, 4, r.turn())
	for k := range 12 {
		require.NoError(t, r.checkMessage(l, k, r.remote.message(0, k%4, 1000)))
	}
	assert.Equal(t, 8, r.verified)
	assert.ErrorContains(t, r.checkMessage(l, 12, r.remote.message(0, 1, 1000)), "repeats message 0")
}

// TestWrongAtomics: an atomic that was lost, or executed twice, is found.
func TestWrongAtomics(t *testing.T) {
	r, l := openRun(t, "-n 100 ib_atomic_bw localhost", false), &lane{}
	turn := r.turn()
	for k := range 3 * turn {
		require.NoError(t, r.checkAtomic(l, k, uint64(7+k/turn)))
	}
	assert.ErrorContains(t, r.checkAtomic(l, 3*turn, 9), "value 0x9, want 0xa")
	assert.ErrorContains(t, r.checkAtomic(l, 3*turn+1, 11), "value 0xb, want 0xa")
}

// TestWrongEcho: each kind of wrong message of ibv_*_pingpong is found.
func TestWrongEcho(t *testing.T) {
	server := func(line string) *run {
		e, err := openEndpoint(planOf(t, line))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, e.close()) })
		require.NoError(t, e.createQueues())
		r := &run{endpoint: e}
		require.NoError(t, r.allocatePingpong())
		return r
	}
	fill := func(n int, c byte) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = c
		}
		return b
	}
	r, l := server("ibv_rc_pingpong"), &lane{}
	first := fill(4096, filled)
	require.NoError(t, r.checkEcho(l, 0, first))
	first[0] = 0 // option -c
	require.NoError(t, r.checkEcho(l, 0, first))
	first[1] = 0
	assert.ErrorContains(t, r.checkEcho(l, 0, first), "byte 1 is 0x00")
	r.received = 1
	require.NoError(t, r.checkEcho(l, 1, r.local.message(0, 0, 4096)))
	assert.ErrorIs(t, r.checkEcho(l, 1, r.local.message(0, 1, 4096)), errData)

	r = server("ibv_srq_pingpong")
	mixed := append(fill(2000, 0), r.local.message(0, 0, 4096)[2000:]...)
	require.NoError(t, r.checkEcho(l, 0, mixed))
	r.received = 1
	assert.ErrorIs(t, r.checkEcho(l, 1, mixed), errData)
}

// TestWrongSender: a datagram of another sender is found.
func TestWrongSender(t *testing.T) {
	r := openRun(t, "-c UD -s 100 ib_send_bw", true)
	l := &lane{remote: address{QPN: 5, GID: gidOf(10, 0, 0, 1)}}
	grh := make([]byte, grhSize)
	copy(grh[32:], []byte{10, 0, 0, 1})
	wc := verbs.WC{Flags: verbs.WCGRH, SrcQP: 5}
	require.NoError(t, r.checkGRH(l, &wc, grh))
	wc.SrcQP = 6
	assert.ErrorContains(t, r.checkGRH(l, &wc, grh), "queue pair 0x6")
	wc.SrcQP = 5
	grh[35] = 2
	assert.ErrorContains(t, r.checkGRH(l, &wc, grh), "from 10.0.0.2")
	l.remote.GID = verbs.GID{0: 0xfd, 15: 1}
	copy(grh[8:24], l.remote.GID[:])
	require.NoError(t, r.checkGRH(l, &wc, grh))
	wc.Flags = 0
	assert.ErrorContains(t, r.checkGRH(l, &wc, grh), "no GRH")
}

// TestStreams: messages of different queue pairs and numbers differ, and so do both sides'.
func TestStreams(t *testing.T) {
	a, b := newStream(clientSeed, 64), newStream(serverSeed, 64)
	seen := map[uint64]bool{}
	for k := range streamTurn {
		v := binary.LittleEndian.Uint64(a.message(0, k, 64))
		assert.False(t, seen[v])
		seen[v] = true
		assert.NotEqual(t, a.message(0, k, 64), a.message(1, k, 64))
		assert.NotEqual(t, a.message(0, k, 64), b.message(0, k, 64))
	}
}
