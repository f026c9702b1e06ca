package shm

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// roleMemory is a process with a domain that does what it is told: one line,
// one answer. Regions and keys are numbered from 0.
//
//	alloc N FLAGS | register N FLAGS   key as hex
//	read I OFF N | write I OFF HEX     of region I, by its owner
//	revoke I | close I                 status, error
//	unpack HEX                         "key I", or the error
//	put I ADDR HEX | get I ADDR N | add I ADDR V | attr I | release I
//	flood I ADDR N                     puts N bytes, "running", until refused; then the status
//	enter HEX                          counts an access by a key, for good
//	exec                               becomes another program: this one, anew
func roleMemory(say func(string), hear func() string) {
	set, _, err := config.Load(config.Options{Dirs: []string{}}, settings)
	must(set, err)
	w := &memoryPlayer{say: say}
	w.d = must(Component().OpenDomain(uct.DomainInfo{Component: transportName, Name: transportName}, uct.DomainConfig{Settings: set}))
	w.rma.Init(w.d.(*domain).keys)
	for {
		f := strings.Fields(hear())
		say(w.do(f[0], f[1:]))
	}
}

// memoryProcess is the other end of roleMemory.
type memoryProcess struct{ *process }

func startMemory(t testing.TB) memoryProcess {
	t.Helper()
	return memoryProcess{start(t, "memory")}
}

// ask tells it something and gives the answer.
func (p memoryProcess) ask(format string, args ...any) string {
	p.t.Helper()
	p.say(fmt.Sprintf(format, args...))
	return p.hear()
}

// stop stops it, and returns when it has.
func (p memoryProcess) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	require.Eventually(p.t, func() bool { // each of its threads
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		for _, s := range stats {
			b, err := os.ReadFile(s)
			if err == nil && !strings.Contains(string(b), ") T ") {
				return false
			}
		}
		return err == nil && len(stats) > 0
	}, patience, time.Millisecond)
}

type memoryPlayer struct {
	d    uct.Domain
	say  func(string)
	mems []uct.Mem
	keys []uct.RKey
	rma  mapped.RMA
}

func number(s string) uint64 {
	var n uint64
	if _, err := fmt.Sscan(s, &n); err != nil {
		panic(err)
	}
	return n
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func (w *memoryPlayer) do(op string, a []string) string {
	switch op {
	case "alloc", "register", "read", "write", "revoke", "close":
		return w.own(op, a)
	case "unpack":
		k, err := w.d.UnpackKey(unhex(a[0]))
		if err != nil {
			return err.Error()
		}
		w.keys = append(w.keys, k)
		return fmt.Sprintf("key %d", len(w.keys)-1)
	case "enter":
		return w.enter(unhex(a[0]))
	case "exec":
		err := syscall.Exec("/proc/self/exe", os.Args[:1], os.Environ())
		return err.Error()
	}
	return w.use(op, w.keys[number(a[0])], a[1:])
}

// own does what a region's owner does.
func (w *memoryPlayer) own(op string, a []string) string {
	var m uct.Mem
	if op == "alloc" || op == "register" {
		var err error
		n, fl := int(number(a[0])), uct.MemFlags(number(a[1]))
		if op == "alloc" {
			m, err = w.d.Allocate(n, fl)
		} else {
			m, err = w.d.Register(make([]byte, n), fl)
		}
		if err != nil {
			return err.Error()
		}
		w.mems = append(w.mems, m)
		return hex.EncodeToString(m.AppendKey(nil))
	}
	m = w.mems[number(a[0])]
	switch op {
	case "read":
		off := number(a[1])
		return "=" + hex.EncodeToString(m.Bytes()[off:off+number(a[2])])
	case "write":
		copy(m.Bytes()[number(a[1]):], unhex(a[2]))
		return "ok"
	case "revoke":
		return m.Revoke().String()
	default:
		return fmt.Sprint(m.Close())
	}
}

// use does what the holder of a key does.
func (w *memoryPlayer) use(op string, k uct.RKey, a []string) string {
	switch op {
	case "put":
		return w.rma.PutShort(unhex(a[1]), number(a[0]), k).String()
	case "get":
		b := make([]byte, number(a[1]))
		if st := w.rma.GetShort(b, number(a[0]), k); st != ucs.OK {
			return st.String()
		}
		return "=" + hex.EncodeToString(b)
	case "add":
		old, st := w.rma.Fetch64(uct.AtomicAdd, number(a[1]), 0, number(a[0]), k, 0)
		return fmt.Sprint(old, " ", st)
	case "attr":
		at := w.d.KeyAttr(k)
		return fmt.Sprintf("put=%v get=%v atomics=%v bytes=%d", at.Ops.Has(uct.OpsPut), at.Ops.Has(uct.OpsGet), at.Atomic64 == uct.AllAtomics, len(at.Bytes))
	case "release":
		w.d.ReleaseKey(k)
		return "ok"
	case "flood":
		return w.flood(k, number(a[0]), number(a[1]))
	}
	return "what is " + op
}

func (w *memoryPlayer) flood(k uct.RKey, addr, n uint64) string {
	p := make([]byte, n)
	for i := uint64(1); ; i++ {
		binary.LittleEndian.PutUint64(p, i)
		if st := w.rma.PutShort(p, addr, k); st != ucs.OK {
			return st.String()
		}
		if i == 10 {
			w.say("running")
		}
	}
}

// enter stays inside an access by a key.
func (w *memoryPlayer) enter(key []byte) string {
	var p mapped.PackedKey
	if err := p.Parse(key); err != nil {
		return err.Error()
	}
	r := w.d.(*domain).remotes[p.Domain]
	if !mapped.SlotAt(r.table.Bytes(), p.Slot).Enter(p.Gen) {
		return "refused"
	}
	return "inside"
}
