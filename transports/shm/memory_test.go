package shm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// borrow unpacks a key, which the test must not need to release.
func borrow(t testing.TB, d *domain, hexKey string) (uct.RKey, mapped.PackedKey) {
	t.Helper()
	b, err := hex.DecodeString(hexKey)
	require.NoError(t, err, hexKey)
	var p mapped.PackedKey
	require.NoError(t, p.Parse(b))
	k, err := d.UnpackKey(b)
	require.NoError(t, err)
	return k, p
}

func accessor(d *domain) *mapped.RMA {
	r := new(mapped.RMA)
	r.Init(d.keys)
	return r
}

// needCMA skips where the system forbids copies between processes.
func needCMA(t testing.TB, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), "process_vm_readv") {
		t.Skip(err)
	}
	require.NoError(t, err)
}

// TestAllocatedTwoProcesses: memory of another process's domain, mapped here.
func TestAllocatedTwoProcesses(t *testing.T) {
	d, other := newTestDomain(t), startMemory(t)
	k, p := borrow(t, d, other.ask("alloc 70000 %d", uct.MemRemote))
	rma := accessor(d)

	a := d.KeyAttr(k)
	assert.True(t, a.Ops.Has(uct.OpsPut|uct.OpsGet|uct.OpAtomics))
	assert.Equal(t, uct.AllAtomics, a.Atomic32)
	assert.Equal(t, uct.AllAtomics, a.Atomic64)
	require.Len(t, a.Bytes, 70000)

	require.Equal(t, ucs.OK, rma.PutShort([]byte("hello"), p.Base+69995, k))
	assert.Equal(t, "="+hex.EncodeToString([]byte("hello")), other.ask("read 0 69995 5"))
	other.ask("write 0 100 %x", "there")
	got := make([]byte, 5)
	require.Equal(t, ucs.OK, rma.GetShort(got, p.Base+100, k))
	assert.Equal(t, "there", string(got))
	assert.Equal(t, "there", string(a.Bytes[100:105]))
	old, st := rma.Fetch64(uct.AtomicAdd, 5, 0, p.Base+8, k, 0)
	assert.Equal(t, ucs.OK, st)
	assert.Zero(t, old)
	assert.Equal(t, "=0500000000000000", other.ask("read 0 8 8"))
	assert.Equal(t, ucs.InvalidParam, rma.PutShort([]byte("hello"), p.Base+69996, k))

	// And the other way round, at the same time.
	m, err := d.Allocate(64, uct.MemRemote)
	require.NoError(t, err)
	require.Equal(t, "key 0", other.ask("unpack %x", m.AppendKey(nil)))
	own := memKey(t, m)
	assert.Equal(t, "OK", other.ask("put 0 %d %x", own.Base, "abcdefgh"))
	assert.Equal(t, "abcdefgh", string(m.Bytes()[:8]))
	assert.Equal(t, "0 OK", other.ask("add 0 %d 3", own.Base+16))
	assert.Equal(t, "3 OK", other.ask("add 0 %d 3", own.Base+16))
	assert.Equal(t, "put=true get=true atomics=true bytes=64", other.ask("attr 0"))
	require.NoError(t, m.Close())
	assert.Equal(t, "remote access denied", other.ask("put 0 %d %x", own.Base, "abcdefgh"))
	assert.Contains(t, other.ask("unpack %x", own.Append(nil)), "revoked or closed")
}

func memKey(t testing.TB, m uct.Mem) (p mapped.PackedKey) {
	t.Helper()
	require.NoError(t, p.Parse(m.AppendKey(nil)))
	return p
}

// TestRegisteredTwoProcesses: memory of another program, copied by the kernel.
func TestRegisteredTwoProcesses(t *testing.T) {
	d, other := newTestDomain(t), startMemory(t)
	const size = 3<<20 + 5
	key := other.ask("register %d %d", size, uct.MemRemote)
	_, err := d.UnpackKey(unhex(key))
	needCMA(t, err)
	k, p := borrow(t, d, key)
	rma := accessor(d)

	a := d.KeyAttr(k)
	assert.True(t, a.Ops.Has(uct.OpsPut|uct.OpsGet))
	assert.False(t, a.Ops.Has(uct.OpAtomics))
	assert.Zero(t, a.Atomic32)
	assert.Zero(t, a.Atomic64)
	assert.Nil(t, a.Bytes)
	assert.Equal(t, ucs.RemoteAccess, rma.Atomic64(uct.AtomicAdd, 1, p.Base&^7, k))

	want, got := make([]byte, size), make([]byte, size)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range want {
		want[i] = byte(rnd.Uint32())
	}
	require.Equal(t, ucs.OK, rma.PutShort(want, p.Base, k))
	require.Equal(t, ucs.OK, rma.GetShort(got, p.Base, k))
	assert.True(t, bytes.Equal(want, got))
	assert.Equal(t, "="+hex.EncodeToString(want[size-9:]), other.ask("read 0 %d 9", size-9))
	v := []uct.Vec{{Buf: got[:1]}, {Buf: got[1:1]}, {Buf: got[1:1000]}}
	require.Equal(t, ucs.OK, rma.PutZcopy(v, p.Base+7, k, 0))
	assert.Equal(t, "="+hex.EncodeToString(got[:1000]), other.ask("read 0 7 1000"))
	require.Equal(t, ucs.OK, rma.GetZcopy(v, p.Base+7, k, 0))
	require.Equal(t, ucs.OK, rma.PutUint64(0x0807060504030201, p.Base+3, k))
	assert.Equal(t, "=0102030405060708", other.ask("read 0 3 8"))
	u, st := rma.GetUint64(p.Base+3, k, 0)
	assert.Equal(t, ucs.OK, st)
	assert.EqualValues(t, 0x0807060504030201, u)
	assert.Equal(t, ucs.InvalidParam, rma.PutShort(want[:6], p.Base+size-5, k))

	if !race.Enabled {
		assert.Zero(t, testing.AllocsPerRun(10, func() {
			rma.PutUint64(1, p.Base, k)
			rma.GetShort(got[:100], p.Base, k)
		}))
	}

	assert.Equal(t, "OK", other.ask("revoke 0"))
	assert.Equal(t, ucs.RemoteAccess, rma.PutUint64(0, p.Base, k))
	assert.Equal(t, "<nil>", other.ask("close 0"))
	_, err = d.UnpackKey(unhex(key))
	assert.ErrorIs(t, err, ucs.ErrRemoteAccess)
}

// TestSameProcess: another domain of this process is reached without asking,
// atomics included, and memory stays while the key is held.
func TestSameProcess(t *testing.T) {
	for _, registered := range []bool{false, true} {
		d, o := newTestDomain(t), newTestDomain(t)
		for name, borrower := range map[string]*domain{"own": o, "other": d} {
			t.Run(fmt.Sprintf("%s/registered=%v", name, registered), func(t *testing.T) {
				var m uct.Mem
				var err error
				if registered {
					m, err = o.Register(make([]byte, 100), uct.MemRemote)
				} else {
					m, err = o.Allocate(100, uct.MemRemote)
				}
				require.NoError(t, err)
				k, err := borrower.UnpackKey(m.AppendKey(nil))
				require.NoError(t, err)
				rma, p := accessor(borrower), memKey(t, m)
				at := borrower.KeyAttr(k)
				assert.Equal(t, uct.AllAtomics, at.Atomic64)
				require.Len(t, at.Bytes, 100)
				require.Equal(t, ucs.OK, rma.Atomic64(uct.AtomicAdd, 7, p.Base, k))
				assert.Equal(t, byte(7), m.Bytes()[0])
				require.ErrorIs(t, o.Close(), ucs.ErrBusy)
				require.NoError(t, m.Close())
				at.Bytes[0] = 1
				assert.Equal(t, ucs.RemoteAccess, rma.PutUint64(0, p.Base, k))
				borrower.ReleaseKey(k)
				assert.Zero(t, borrower.keys.Len())
				assert.Empty(t, borrower.remotes, "nobody was asked")
			})
		}
	}
}

// TestRevokeUnderWrites: a peer writes all along while the region goes away.
// What it wrote before stays as it was when Close returned.
func TestRevokeUnderWrites(t *testing.T) {
	for _, kind := range []string{"alloc", "register"} {
		t.Run(kind, func(t *testing.T) {
			d, other := newTestDomain(t), startMemory(t)
			const n = 1 << 20
			buf := make([]byte, n)
			var m uct.Mem
			var err error
			if kind == "alloc" {
				m, err = d.Allocate(n, uct.MemRemote)
			} else {
				m, err = d.Register(buf, uct.MemRemote)
			}
			require.NoError(t, err)
			answer := other.ask("unpack %x", m.AppendKey(nil))
			if strings.Contains(answer, "process_vm_readv") {
				t.Skip(answer)
			}
			require.Equal(t, "key 0", answer)
			require.Equal(t, "running", other.ask("flood 0 %d %d", memKey(t, m).Base, n))
			require.NoError(t, m.Close())
			after := bytes.Clone(buf)
			require.Equal(t, "remote access denied", other.hear())
			assert.Equal(t, after[:8], buf[:8])
			if kind == "register" {
				assert.NotZero(t, binary.LittleEndian.Uint64(buf))
			}
			assert.Equal(t, "ok", other.ask("release 0"))
		})
	}
}

// TestOwnerKilled: what is mapped stays and does not fault; memory of the dead
// program is gone, and says so.
func TestOwnerKilled(t *testing.T) {
	d, other := newTestDomain(t), startMemory(t)
	key, farKey := other.ask("alloc 8192 %d", uct.MemRemote), other.ask("register 8192 %d", uct.MemRemote)
	late := other.ask("alloc 10 %d", uct.MemRemote)
	k, p := borrow(t, d, key)
	_, err := d.UnpackKey(unhex(farKey))
	needCMA(t, err)
	fk, fp := borrow(t, d, farKey)
	rma := accessor(d)
	require.Equal(t, ucs.OK, rma.PutUint64(1, p.Base, k))
	require.Equal(t, ucs.OK, rma.PutUint64(1, fp.Base, fk))
	other.kill()

	require.Equal(t, ucs.OK, rma.PutUint64(2, p.Base+8184, k))
	v, st := rma.GetUint64(p.Base+8184, k, 0)
	assert.Equal(t, ucs.OK, st)
	assert.EqualValues(t, 2, v)
	b := d.KeyAttr(k).Bytes
	b[4096] = 1

	assert.Equal(t, ucs.PeerFailed, rma.PutUint64(2, fp.Base, fk))
	assert.Equal(t, ucs.PeerFailed, rma.GetShort(make([]byte, 100), fp.Base, fk))

	before := time.Now()
	_, err = d.UnpackKey(unhex(late))
	require.ErrorIs(t, err, ucs.ErrUnreachable)
	assert.ErrorContains(t, err, fmt.Sprintf("process %d", other.cmd.Process.Pid))
	assert.Less(t, time.Since(before), 10*time.Second)
	_, err = d.UnpackKey(unhex(key)) // known already
	require.NoError(t, err)
}

// TestOwnerBecomesAnotherProgram: the process id stays, the memory does not.
func TestOwnerBecomesAnotherProgram(t *testing.T) {
	d, other := newTestDomain(t), startMemory(t)
	key := other.ask("register 4096 %d", uct.MemRemote)
	_, err := d.UnpackKey(unhex(key))
	needCMA(t, err)
	k, p := borrow(t, d, key)
	rma := accessor(d)
	require.Equal(t, ucs.OK, rma.PutUint64(1, p.Base, k))
	other.say("exec")
	last := ucs.OK
	require.Eventually(t, func() bool {
		st := rma.PutUint64(1, p.Base, k)
		// Its old memory goes a moment before its sockets do.
		assert.False(t, last != ucs.OK && st == ucs.OK, "works again after %v", last)
		last = st
		return st == ucs.PeerFailed
	}, patience, time.Millisecond)
	assert.NotEmpty(t, other.ask("alloc 1 0"), "the new program lives")
}

// TestOwnerStopped: unpacking is bounded and says what to look at; keys held
// can be released meanwhile.
func TestOwnerStopped(t *testing.T) {
	d, other := newTestDomain(t), startMemory(t)
	k, _ := borrow(t, d, other.ask("alloc 10 %d", uct.MemRemote))
	key := other.ask("alloc 10 %d", uct.MemRemote)
	d.replyWait = 200 * time.Millisecond
	other.stop()
	errs := make(chan error)
	go func() {
		_, err := d.UnpackKey(unhex(key))
		errs <- err
	}()
	d.ReleaseKey(k)
	err := <-errs
	require.ErrorIs(t, err, ucs.ErrTimeout)
	for _, word := range []string{fmt.Sprintf("process %d", other.cmd.Process.Pid), "no answer", requestTimeout.String(), "stopped", "goucx-key-"} {
		assert.ErrorContains(t, err, word)
	}
	require.NoError(t, other.cmd.Process.Signal(syscall.SIGCONT))
	// A machine that is busy may not give the owner a processor within the time
	// that asking waits.
	require.Eventually(t, func() bool {
		k, err = d.UnpackKey(unhex(key))
		return !errors.Is(err, ucs.ErrTimeout)
	}, patience, time.Millisecond)
	require.NoError(t, err)
	d.ReleaseKey(k)
}

// TestPeerDiesInside: the owner cannot know when, so the buffer stays pinned
// and the error says so.
func TestPeerDiesInside(t *testing.T) {
	d, other := newTestDomain(t), startMemory(t)
	d.closeWait = 20 * time.Millisecond
	m, err := d.Register(make([]byte, 64), uct.MemRemote)
	require.NoError(t, err)
	key := m.AppendKey(nil)
	answer := other.ask("unpack %x", key)
	if strings.Contains(answer, "process_vm_readv") {
		t.Skip(answer)
	}
	require.Equal(t, "key 0", answer)
	require.Equal(t, "inside", other.ask("enter %x", key))
	other.kill()
	err = m.Close()
	require.ErrorIs(t, err, mapped.ErrExposed)
	assert.ErrorContains(t, err, "1 accesses")
	m, err = d.Register(make([]byte, 64), uct.MemRemote)
	require.NoError(t, err)
	require.NoError(t, m.Close(), "others are not affected")
}

// TestStaleKey: the slot is another region's by now.
func TestStaleKey(t *testing.T) {
	d, other := newTestDomain(t), startMemory(t)
	old := other.ask("alloc 64 %d", uct.MemRemote)
	k, p := borrow(t, d, old)
	require.Equal(t, "<nil>", other.ask("close 0"))
	next, q := borrow(t, d, other.ask("alloc 64 %d", uct.MemRemote))
	require.Equal(t, p.Slot, q.Slot, "the test wants the same slot")
	rma := accessor(d)
	assert.Equal(t, ucs.RemoteAccess, rma.PutUint64(1, p.Base, k))
	assert.Equal(t, ucs.OK, rma.PutUint64(1, q.Base, next))
	_, err := d.UnpackKey(unhex(old))
	assert.ErrorIs(t, err, ucs.ErrRemoteAccess)
	d.ReleaseKey(k)
	assert.Equal(t, ucs.OK, rma.PutUint64(1, q.Base, next), "other keys stay")
}

// TestForgedKeys: a key with a right checksum that says more than the owner
// granted is refused.
func TestForgedKeys(t *testing.T) {
	d, other := newTestDomain(t), startMemory(t)
	var p mapped.PackedKey
	require.NoError(t, p.Parse(unhex(other.ask("alloc 64 %d", uct.MemRemoteGet))))
	for name, change := range map[string]func(*mapped.PackedKey){
		"longer":     func(p *mapped.PackedKey) { p.Len = 1 << 40 },
		"elsewhere":  func(p *mapped.PackedKey) { p.Base += 4096 },
		"flags":      func(p *mapped.PackedKey) { p.Flags = uct.MemRemote },
		"kind":       func(p *mapped.PackedKey) { p.Kind = mapped.Registered },
		"slot":       func(p *mapped.PackedKey) { p.Slot = 1 << 20 },
		"generation": func(p *mapped.PackedKey) { p.Gen++ },
		"domain":     func(p *mapped.PackedKey) { p.Domain[3]++ },
		"socket":     func(p *mapped.PackedKey) { p.Socket = "@goucx-key-nobody" },
		"no socket":  func(p *mapped.PackedKey) { p.Socket = "" },
		"odd socket": func(p *mapped.PackedKey) { p.Socket = "\x00\xff" },
		"this one's": func(p *mapped.PackedKey) { p.Domain = d.id },
	} {
		q := p
		change(&q)
		_, err := d.UnpackKey(q.Append(nil))
		assert.Error(t, err, name)
		assert.Empty(t, d.remotes, name)
	}
	k, err := d.UnpackKey(p.Append(nil))
	require.NoError(t, err)
	for name, change := range map[string]func(*mapped.PackedKey){
		"longer, known region": func(p *mapped.PackedKey) { p.Len = 1 << 40 },
		"slot, known table":    func(p *mapped.PackedKey) { p.Slot = 1 << 20 },
	} {
		q := p
		change(&q)
		_, err := d.UnpackKey(q.Append(nil))
		assert.Error(t, err, name)
	}
	d.ReleaseKey(k)
}

// TestManyUnpack: many goroutines, two processes, the same and other keys.
func TestManyUnpack(t *testing.T) {
	d, other := newTestDomain(t), startMemory(t)
	var keys []string
	for i := range 8 {
		keys = append(keys, other.ask("alloc %d %d", 4096+i, uct.MemRemote))
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rma := accessor(d)
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for range 50 {
				b := unhex(keys[rnd.IntN(len(keys))])
				k, err := d.UnpackKey(b)
				if !assert.NoError(t, err) {
					return
				}
				var p mapped.PackedKey
				assert.NoError(t, p.Parse(b))
				assert.Equal(t, ucs.OK, rma.Atomic64(uct.AtomicAdd, 1, p.Base, k))
				d.ReleaseKey(k)
			}
		})
	}
	wg.Wait()
	assert.Empty(t, d.remotes)
	sum := uint64(0)
	for i := range keys {
		sum += binary.LittleEndian.Uint64(unhex(other.ask("read %d 0 8", i)[1:]))
	}
	assert.EqualValues(t, 8*50, sum)
}

// open is what this process has open and mapped of ours.
func open(t testing.TB) (fds int, maps []string) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	text, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "goucx-mem") || strings.Contains(line, "goucx-keys") {
			maps = append(maps, line)
		}
	}
	return len(list), maps
}

// TestNoLeaks: everything that keys and regions opened is given back, with the
// keys or, at the latest, with the domain.
func TestNoLeaks(t *testing.T) {
	other := startMemory(t)
	key, farKey := other.ask("alloc 4096 %d", uct.MemRemote), other.ask("register 4096 %d", uct.MemRemote)
	once := func(release bool) {
		d, err := Component().OpenDomain(uct.DomainInfo{Component: transportName, Name: transportName}, uct.DomainConfig{})
		require.NoError(t, err)
		m1, err := d.Allocate(100, uct.MemRemote)
		require.NoError(t, err)
		m2, err := d.Register(make([]byte, 100), uct.MemRemote)
		require.NoError(t, err)
		for _, b := range [][]byte{unhex(key), unhex(key), unhex(farKey), m1.AppendKey(nil), m2.AppendKey(nil)} {
			k, err := d.UnpackKey(b)
			needCMA(t, err)
			if release {
				d.ReleaseKey(k)
			}
		}
		_, err = d.UnpackKey([]byte("no key"))
		require.Error(t, err)
		require.NoError(t, m1.Close())
		require.NoError(t, m2.Close())
		require.NoError(t, d.Close())
		require.NoError(t, d.Close(), "idempotent")
		_, err = d.Allocate(1, 0)
		require.ErrorIs(t, err, ucs.ErrClosed)
		_, err = d.UnpackKey(unhex(key))
		require.ErrorIs(t, err, ucs.ErrClosed)
	}
	once(true) // the runtime opens its poller at the first use
	before, mapsBefore := open(t)
	lenders := len(localExporters.exporters)
	goroutines := runtime.NumGoroutine()
	for i := range 10 {
		once(i%2 == 0)
	}
	after, maps := open(t)
	assert.Equal(t, before, after)
	assert.Len(t, maps, len(mapsBefore))
	until(t, func() bool { return runtime.NumGoroutine() <= goroutines }) // one that ends is counted for a moment
	assert.Len(t, localExporters.exporters, lenders)
	// The borrower before us left nothing at the owner either.
	assert.Equal(t, "<nil>", other.ask("close 0"))
	assert.Equal(t, "<nil>", other.ask("close 1"))
}

// TestIdleDomain: nothing is opened before the first region or key.
func TestIdleDomain(t *testing.T) {
	newTestDomain(t) // see TestNoLeaks
	before, mapsBefore := open(t)
	newTestDomain(t)
	after, maps := open(t)
	assert.Equal(t, before, after)
	assert.Equal(t, mapsBefore, maps)
}

func TestMemoryErrors(t *testing.T) {
	d := newTestDomain(t)
	for _, n := range []int{0, -1, domainAttr.MaxAllocate + 1} {
		_, err := d.Allocate(n, uct.MemRemote)
		assert.ErrorIs(t, err, ucs.ErrInvalid)
	}
	_, err := d.Allocate(1<<50, uct.MemRemote)
	assert.Error(t, err)
	_, err = d.Register(nil, uct.MemRemote)
	assert.ErrorIs(t, err, ucs.ErrInvalid)
	m, err := d.Allocate(4<<20, uct.MemRemote|uct.MemHuge|uct.MemNoPin)
	require.NoError(t, err)
	assert.Len(t, m.Bytes(), 4<<20)
	assert.LessOrEqual(t, len(m.AppendKey(nil)), d.Attr().KeyLen)
	require.NoError(t, m.Close())
}

// TestSocketDir: keys work across network namespaces that share a directory.
func TestSocketDir(t *testing.T) {
	dir := t.TempDir()
	set, _, err := config.Load(config.Options{Env: []string{"UCX_SHM_SOCKET_DIR=" + dir}, Dirs: []string{}}, settings)
	require.NoError(t, err)
	d, err := Component().OpenDomain(uct.DomainInfo{Component: transportName, Name: transportName}, uct.DomainConfig{Settings: set})
	require.NoError(t, err)
	m, err := d.Allocate(10, uct.MemRemote)
	require.NoError(t, err)
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
	other := startMemory(t)
	assert.Equal(t, "key 0", other.ask("unpack %x", m.AppendKey(nil)))
	require.NoError(t, m.Close())
	require.NoError(t, d.Close())
	list, err = os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, list)
}

// TestFreedPagesAreNotReused: what a peer maps of a closed region is not the memory of a later one, at either side.
func TestFreedPagesAreNotReused(t *testing.T) {
	d, other := newTestDomain(t), startMemory(t)
	const n, regions = 8 << 10, 20
	k, _ := borrow(t, d, other.ask("alloc %d %d", n, uct.MemRemote))
	old := d.KeyAttr(k).Bytes
	require.Len(t, old, n)
	other.ask("write 0 0 %x", bytes.Repeat([]byte{1}, n))
	require.Equal(t, "<nil>", other.ask("close 0"))
	for i := range regions {
		other.ask("alloc %d %d", n, uct.MemRemote)
		other.ask("write %d 0 %x", i+1, bytes.Repeat([]byte{2}, n))
	}
	require.Equal(t, bytes.Repeat([]byte{1}, n), old, "the peer's mapping has what it had")
	copy(old, bytes.Repeat([]byte{3}, n))
	for i := range regions {
		require.Equal(t, hex.EncodeToString(bytes.Repeat([]byte{2}, n)), other.ask("read %d 0 %d", i+1, n)[1:], "region %d", i+1)
	}
	d.ReleaseKey(k)
}
