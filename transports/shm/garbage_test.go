package shm

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// picky checks that every message lies in its memory and touches it.
type picky struct {
	recorder
	t   *testing.T
	sum byte
}

func (p *picky) HandleAM(mem []byte, ds []uct.Desc) uint64 {
	if len(ds) == 0 || len(ds) > uct.MaxBatch {
		p.t.Errorf("%d messages", len(ds))
	}
	for i := range ds {
		d := &ds[i]
		if uint64(d.Off)+uint64(d.Len) > uint64(len(mem)) || d.ID >= uct.NumAMIDs || d.RxConn == 0 {
			p.t.Errorf("%+v in %d bytes", *d, len(mem))
			continue
		}
		for _, b := range mem[d.Off:][:d.Len] {
			p.sum += b
		}
	}
	return p.recorder.HandleAM(mem, ds)
}

func (p *picky) HandlePending(ts []uct.Token) int { return len(ts) }

// vandal writes what it likes where two ifaces share memory.
type vandal struct {
	rnd   *rand.Rand
	pages [][]byte
}

// words that code is likely to trip over.
func (v *vandal) word() uint64 {
	one := uint64(1) << v.rnd.IntN(64)
	return [...]uint64{0, 1, one, one - 1, -one, v.rnd.Uint64(), v.rnd.Uint64N(300), v.rnd.Uint64N(300) | one}[v.rnd.IntN(8)]
}

// strike overwrites one word, of the first ones more often.
func (v *vandal) strike() {
	m := v.pages[v.rnd.IntN(len(v.pages))]
	words := len(m) / 8
	if v.rnd.IntN(2) == 0 {
		words = min(words, 200)
	}
	at := m[8*v.rnd.IntN(words):]
	w := v.word()
	if v.rnd.IntN(2) == 0 {
		w += binary.NativeEndian.Uint64(at) // near what is right
	}
	binary.NativeEndian.PutUint64(at, w)
}

// TestAnyByteMayChange: whatever a peer does to the memory it maps, and when, no
// access goes astray, no loop is endless, and another peer's messages come.
func TestAnyByteMayChange(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 10
	}
	for _, beside := range []bool{false, true} {
		for seed := range seeds {
			t.Run(fmt.Sprint(beside, seed), func(t *testing.T) { vandalise(t, rand.New(rand.NewPCG(seed, 7)), beside) })
		}
	}
}

// mappedAgain maps s as a peer does: it stays when the connection goes.
func mappedAgain(t *testing.T, s *shmem.Segment) []byte {
	fd, err := unix.FcntlInt(uintptr(s.FD()), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	m, err := shmem.Map(fd, len(s.Bytes()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m.Bytes()
}

// vandalise strikes between calls or, beside, at the same time.
func vandalise(t *testing.T, rnd *rand.Rand, beside bool) {
	ra, rb := &picky{t: t}, &picky{t: t}
	a, b, c := openTest(t, ra), openTest(t, rb), openTest(t, new(recorder))
	good := connectTest(t, c, b)
	want := uint64(0)
	rb.onAM = func(d uct.Desc, _ []byte) {
		if d.Header>>32 == 77 && d.ID == 9 && d.RxConn == 1 {
			require.Equal(t, want, d.Header&0xffffffff)
			want++
		}
	}
	require.Equal(t, ucs.OK, good.AMShort(9, 77<<32, nil))
	until(t, func() bool { return want == 1 }, b, c)
	ab := connectTest(t, a, b)
	require.Equal(t, ucs.OK, ab.AMShort(1, 0, nil))
	v := &vandal{rnd: rnd}
	for _, s := range []*shmem.Segment{ab.pairs[0].seg, a.pages[0].seg, b.pages[0].seg} {
		v.pages = append(v.pages, mappedAgain(t, s))
	}
	n := rb.n
	until(t, func() bool { return rb.n > n && ab.peerPage != nil }, a, b)
	ba := connectTest(t, b, a)
	stop, stopped := make(chan bool), make(chan bool)
	if beside {
		w := &vandal{rnd: rand.New(rand.NewPCG(rnd.Uint64(), 1)), pages: v.pages}
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					w.strike()
				}
			}
		}()
	} else {
		close(stopped)
	}
	buf := make([]byte, a.attr.AM.Short)
	sent := uint64(1)
	for i := range 3000 {
		if !beside && rnd.IntN(20) == 0 {
			v.strike()
		}
		ab.AMShort(1, 0, buf[:rnd.IntN(60)])
		ba.AMShort(1, 0, buf[:rnd.IntN(len(buf))])
		if rnd.IntN(50) == 0 {
			ab.PendingAdd(1)
			ba.PendingAdd(1)
		}
		if good.AMShort(9, 77<<32|sent, nil) == ucs.OK {
			sent++
		}
		for _, f := range []*iface{a, b, c} {
			f.Progress(64)
			if i%100 == 0 {
				f.Arm(uct.EventRecv)
			}
		}
	}
	until(t, func() bool { return want == sent }, b, c)
	close(stop)
	<-stopped
	for _, e := range []*ep{ab, ba} {
		e.PendingPurge(func(uct.Token) {})
		e.Close()
	}
	// A last word that was struck cannot be told from one that is yet to come, so
	// the connection may last for as long as both workers do.
	require.NoError(t, a.Close())
	until(t, func() bool { return b.Len() == 1 }, b)
}
