package shm

import (
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol/protocoltest"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

func TestKeyWireGolden(t *testing.T) {
	a := keyRequest{wantTable: true, domain: uct.UUID{1, 15: 2}, slot: 0x01020304, gen: 0x1122334455667788}
	assert.Equal(t, "47555851"+"01010000"+"01000000000000000000000000000002"+"04030201"+"00000000"+"8877665544332211",
		hex.EncodeToString(a.append(nil)))
	gone := keyReply{status: keyRevoked}
	assert.Equal(t, "47555852"+"01020000", hex.EncodeToString(gone.append(nil)))
}

func TestKeyWireDamage(t *testing.T) {
	a := keyRequest{wantTable: true, domain: uct.UUID{1}, slot: 3, gen: 4}
	b := a.append(nil)
	var q keyRequest
	require.NoError(t, q.parse(b))
	assert.Equal(t, a, q)
	for i := range b {
		assert.ErrorIs(t, q.parse(b[:i]), errRequest)
	}
	assert.ErrorIs(t, q.parse(append(b[:len(b):len(b)], 0)), errRequest)
	r := keyReply{status: keyOK, region: mapped.PackedKey{Kind: mapped.Allocated, Gen: 1, Base: 4096, Len: 1, Socket: "@x"}}
	b = r.append(nil)
	var s keyReply
	require.NoError(t, s.parse(b))
	assert.Equal(t, r, s)
	for i := range b {
		assert.Error(t, s.parse(b[:i]))
	}
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		if err := s.parse(b); err == nil && (i < 6*8+4 || i >= 7*8) { // else an optional feature
			assert.NotEqual(t, keyOK, s.status, "bit %d", i)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}

func TestKeyWireVersions(t *testing.T) {
	a := keyRequest{wantTable: true, domain: uct.UUID{1, 15: 2}, slot: 3, gen: 0x1122334455667788}
	protocoltest.Run(t, protocoltest.Golden{
		Format: &keyServerFormat, File: "key-request", Version: 4, Features: 6, Bytes: a.append(nil), Want: a,
		Decode: func(b []byte) (any, error) {
			var q keyRequest
			err := q.parse(b)
			return q, err
		},
	})
	r := keyReply{status: keyOK, region: mapped.PackedKey{Kind: mapped.Allocated, Domain: a.domain, Gen: a.gen, Slot: 3, PID: 77, Base: 4096, Len: 10, Socket: "@x"}}
	protocoltest.Run(t, protocoltest.Golden{
		Format: &keyServerFormat, File: "key-reply", Version: 4, Features: 6, Bytes: r.append(nil), Want: r,
		Decode: func(b []byte) (any, error) {
			var q keyReply
			err := q.parse(b)
			return q, err
		},
	})
	r = keyReply{status: keyUnsupported, refused: 1 << 2}
	require.EqualError(t, r.parse(r.append(nil)), "key request of shm of version 1 requires feature 2, which the peer (version 1) does not know")
}

func FuzzKeyAsk(f *testing.F) {
	a := keyRequest{wantTable: true, slot: 1, gen: 2}
	f.Add(a.append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var q keyRequest
		if q.parse(b) == nil {
			b[6] = 0 // optional features
			assert.Equal(t, b, q.append(nil))
		}
	})
}

func FuzzKeyReply(f *testing.F) {
	r := keyReply{status: keyOK, region: mapped.PackedKey{Kind: mapped.Registered, Gen: 1, Base: 4096, Len: 1}}
	f.Add(r.append(nil))
	f.Add([]byte("GUXR\x01\x02\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var q keyReply
		if q.parse(b) == nil && q.status == keyOK {
			var again keyReply
			assert.NoError(t, again.parse(q.append(nil)))
			assert.Equal(t, q, again)
		}
	})
}

// FuzzKeyServer sends a message to a server that runs, and sees it answer the
// next proper request.
func FuzzKeyServer(f *testing.F) {
	d := newTestDomain(f)
	m, err := d.Allocate(10, uct.MemRemote)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, m.Close()) })
	p := memKey(f, m)
	good := keyRequest{wantTable: true, domain: p.Domain, slot: p.Slot, gen: p.Gen}
	f.Add(good.append(nil))
	f.Add(good.append(nil)[:39])
	f.Add([]byte(strings.Repeat("x", 5000)))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := dialOwner(p.Socket, ucs.Now().Add(requestTimeout))
		require.NoError(t, err)
		defer c.Close() //nolint:errcheck // the test is over
		if len(b) > 0 && len(b) < 1<<16 {
			_ = c.Send(b)
		}
		g, err := requestGrant(&p, true, 2*requestTimeout)
		require.NoError(t, err)
		g.close()
	})
}

// TestKeyServerGarbage: nonsense, descriptors nobody asked for, silence and
// hang-ups do not move the server, and are counted.
func TestKeyServerGarbage(t *testing.T) {
	d := newTestDomain(t)
	m, err := d.Allocate(4096, uct.MemRemote)
	require.NoError(t, err)
	p := memKey(t, m)
	server := d.exporter.server
	good := keyRequest{wantTable: true, domain: p.Domain, slot: p.Slot, gen: p.Gen}
	other := good
	other.domain[0]++
	stale := good
	stale.gen++
	wild := good
	wild.slot = 1 << 31
	zero := good
	zero.gen = 0

	fds, _ := open(t)
	for _, c := range []struct {
		name   string
		send   []byte
		fds    []int
		answer string // "": hung up without one
	}{
		{"good", good.append(nil), nil, "GUXR\x01\x00"},
		{"another domain", other.append(nil), nil, "GUXR\x01\x01"},
		{"stale", stale.append(nil), nil, "GUXR\x01\x02"},
		{"wild slot", wild.append(nil), nil, "GUXR\x01\x02"},
		{"generation 0", zero.append(nil), nil, "GUXR\x01\x02"},
		{"short", []byte("GUXQ"), nil, "GUXR\x01\x03"},
		{"another magic", append([]byte("HTTP"), good.append(nil)[4:]...), nil, "GUXR\x01\x03"},
		{"version", append([]byte("GUXQ\x02"), good.append(nil)[5:]...), nil, "GUXR\x01\x03"},
		{"longer version", append(append([]byte("GUXQ\x02"), good.append(nil)[5:]...), 1, 2, 3, 4), nil, "GUXR\x01\x03"},
		{"required feature", append([]byte("GUXQ\x01\x01\x04"), good.append(nil)[7:]...), nil, "GUXR\x01\x03\x00\x04"},
		{"optional feature", append([]byte("GUXQ\x01\x01\x80"), good.append(nil)[7:]...), nil, "GUXR\x01\x00"},
		{"long", make([]byte, 4000), nil, ""},
		{"with descriptors", good.append(nil), []int{0, 1, 2}, "GUXR\x01\x00"},
		{"silent", nil, nil, ""},
	} {
		conn, err := shmem.Dial(p.Socket)
		require.NoError(t, err)
		if c.send == nil {
			require.NoError(t, conn.Close())
			continue
		}
		require.NoError(t, conn.Send(c.send, c.fds...))
		var buf [maxReply]byte
		n, got, err := recvUntil(conn, buf[:], ucs.Now().Add(patience))
		shmem.CloseFDs(got...)
		if c.answer == "" {
			assert.ErrorIs(t, err, io.EOF, c.name)
		} else if assert.NoError(t, err, c.name) {
			assert.Equal(t, c.answer, string(buf[:min(n, len(c.answer))]), c.name)
			assert.Equal(t, strings.HasSuffix(c.answer, "\x00"), len(got) == 2, c.name)
		}
		require.NoError(t, conn.Close())
	}
	g, err := requestGrant(&p, false, 2*requestTimeout)
	require.NoError(t, err)
	assert.Equal(t, -1, g.table)
	g.close()
	assert.EqualValues(t, 5, server.refused.Load())
	require.Eventually(t, func() bool { now, _ := open(t); return now == fds }, patience, time.Millisecond)
	require.NoError(t, m.Close())
}

// TestKeyServerLimit: connections by which nothing was granted keep no peer out: the
// oldest is closed for a new one. Those of peers that hold keys stay, and beyond the
// bound a peer is refused until there is room.
func TestKeyServerLimit(t *testing.T) {
	d := newTestDomain(t)
	m, err := d.Allocate(10, uct.MemRemote)
	require.NoError(t, err)
	p := memKey(t, m)
	ask := keyRequest{domain: p.Domain, slot: p.Slot, gen: p.Gen}
	dial := func() *shmem.Conn {
		c, err := dialOwner(p.Socket, ucs.Now().Add(patience))
		if errors.Is(err, unix.EMFILE) {
			t.Skip(err)
		}
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	granted := func(c *shmem.Conn) error {
		var buf [maxReply]byte
		err := c.Send(ask.append(nil))
		if err == nil {
			var fds []int
			_, fds, err = recvUntil(c, buf[:], ucs.Now().Add(patience))
			shmem.CloseFDs(fds...)
		}
		return err
	}
	held := []*shmem.Conn{dial()}
	require.NoError(t, granted(held[0]), "this one is older than the silent ones")
	var silent []*shmem.Conn
	for range maxKeyConns {
		silent = append(silent, dial())
	}
	for range 3 {
		g, err := requestGrant(&p, false, patience)
		require.NoError(t, err)
		g.close()
	}
	require.Error(t, granted(silent[0]), "the oldest was closed")
	for range maxKeyConns - 1 {
		c := dial()
		require.NoError(t, granted(c))
		held = append(held, c)
	}
	_, err = requestGrant(&p, false, patience)
	require.ErrorIs(t, err, ucs.ErrPeerFailed)
	assert.ErrorContains(t, err, "refuses more connections")
	for _, c := range held {
		require.NoError(t, granted(c), "it is kept")
	}
	require.NoError(t, held[0].Close())
	require.Eventually(t, func() bool {
		g, err := requestGrant(&p, false, requestTimeout)
		g.close()
		return err == nil
	}, patience, time.Millisecond)
	require.NoError(t, m.Close())
}

// TestKeyServerStrangersWithoutEnd: who comes and leaves in a hurry takes
// nobody's place, however fast they come.
func TestKeyServerStrangersWithoutEnd(t *testing.T) {
	d := newTestDomain(t)
	m, err := d.Allocate(10, uct.MemRemote)
	require.NoError(t, err)
	p := memKey(t, m)
	var held []*shmem.Conn
	for range maxKeyConns - 4*maxPerEvent {
		c, err := dialOwner(p.Socket, ucs.Now().Add(patience))
		require.NoError(t, err)
		held = append(held, c)
	}
	var enough atomic.Bool
	var hurry sync.WaitGroup
	for range 2 {
		hurry.Go(func() {
			for !enough.Load() {
				if c, err := shmem.Dial(p.Socket); err == nil {
					assert.NoError(t, c.Close())
				}
			}
		})
	}
	for range 4 {
		g, err := requestGrant(&p, false, patience)
		g.close()
		if !assert.NoError(t, err) {
			break
		}
	}
	enough.Store(true)
	hurry.Wait()
	for _, c := range held {
		require.NoError(t, c.Close())
	}
	require.NoError(t, m.Close())
}
