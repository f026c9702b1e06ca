//go:build linux

package test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// copySizes are the lengths at which messages over shm change their way, and those around pieces of a copy.
func copySizes(t testing.TB) (sizes []int) {
	f := attributes(t, "shm", "memory").Fetch
	for _, n := range []int{1 << 10, f.Heap.From, f.Allocated.From, copyPiece, 2 * copyPiece, 5 * copyPiece, 9 * copyPiece, 64 << 10} {
		for d := -2; d <= 2; d++ {
			if n+d > messageHead {
				sizes = append(sizes, n+d)
			}
		}
	}
	return append(sizes, 1<<20+4711)
}

// exchangeSizes sends and receives messages of all sizes, from and to each kind of memory, with a few under way in both
// directions at once, and checks what arrives.
func exchangeSizes(n *node, e ucp.Endpoint, sender uint32, tags [2]ucp.Tag, sizes []int) error {
	const window = 3
	most := 2 << 20
	place := func() (kinds [2][]byte, err error) {
		m, err := n.x.Allocate(most, ucp.MemConfig{})
		if err == nil {
			kinds = [2][]byte{make([]byte, most), m.Bytes()}
		}
		return kinds, err
	}
	var out, in [window][2][]byte
	for i := range window {
		var err error
		if out[i], err = place(); err != nil {
			return err
		}
		if in[i], err = place(); err != nil {
			return err
		}
	}
	ctx, k := context.Background(), uint64(0)
	for _, size := range sizes {
		for kinds := range 4 {
			var sends [window]ucp.Request
			var recvs [window]ucp.RecvRequest
			for i := range window {
				to := in[i][kinds>>1]
				for at := range to[size:][:canary] {
					to[size+at] = canaryByte
				}
				recvs[i] = n.w.TagRecv(to[:size:size], tags[1], allBits)
			}
			for i := range window {
				p := out[i][kinds&1][:size]
				fill(p, sender, k+uint64(i))
				sends[i] = e.TagSend(p, tags[0])
			}
			for i := range window {
				m, err := recvs[i].Wait(ctx)
				if err != nil {
					return err
				}
				to := in[i][kinds>>1]
				from, number, err := read(to[:m.Len])
				switch {
				case err != nil:
					return fmt.Errorf("%d bytes, kinds %d: %w", size, kinds, err)
				case m.Len != size || from == sender || number != k+uint64(i):
					return fmt.Errorf("message %d of %d with %d bytes, want %d of %d bytes", number, from, m.Len, k+uint64(i), size)
				case bytes.Count(to[size:][:canary], []byte{0xca}) != canary:
					return fmt.Errorf("%d bytes, kinds %d: bytes behind the message have changed", size, kinds)
				}
			}
			for i := range window {
				if err := sends[i].Wait(ctx); err != nil {
					return err
				}
			}
			k += window
		}
	}
	return e.Flush().Wait(ctx)
}

// roleSizes is the second process of TestCopySizes.
func roleSizes(p *parent) {
	mode := ucp.ThreadSingle
	if os.Getenv(multiEnv) != "" {
		mode = ucp.ThreadMulti
	}
	n := must(newNode(mode, patience))
	p.say(n.address())
	e := must(n.connect(p.hear()))
	var count int
	check(scanLine(p.hear(), &count))
	sizes := make([]int, count)
	check(scanLine(p.hear(), anys(sizes)...))
	check(exchangeSizes(n, e, 2, [2]ucp.Tag{tagPong, tagPing}, sizes))
	p.say("done")
	for { // the peer's flush may need it
		n.nap(n.w.Progress())
		if _, ok := p.heard(); ok {
			return
		}
	}
}

// TestCopySizes: what is sent arrives as it was, with lengths around every threshold, between all kinds of memory, both
// directions at once, between two processes and within one.
func TestCopySizes(t *testing.T) {
	withinHost(t)
	sizes := copySizes(t)
	for name, mode := range map[string]ucp.ThreadMode{"single": ucp.ThreadSingle, "multi": ucp.ThreadMulti} {
		t.Run(name+", two processes", func(t *testing.T) {
			if mode == ucp.ThreadMulti {
				t.Setenv(multiEnv, "1")
			}
			p, n := start(t, "sizes"), open(t, mode)
			address := p.hear()
			p.say(n.address())
			p.say(len(sizes))
			p.say(strings.Trim(fmt.Sprint(sizes), "[]"))
			require.NoError(t, exchangeSizes(n, n.dial(t, address), 1, [2]ucp.Tag{tagPing, tagPong}, sizes))
			p.expect("done")
			p.say("end")
			p.ends()
		})
		t.Run(name+", one process", func(t *testing.T) {
			a, b := open(t, mode), open(t, mode)
			ab, ba := a.dial(t, b.address()), b.dial(t, a.address())
			ends := make(chan error)
			stop := make(chan struct{})
			go func() {
				err := exchangeSizes(b, ba, 2, [2]ucp.Tag{tagPong, tagPing}, sizes)
				ends <- err
				for {
					select {
					case <-stop:
						ends <- nil
						return
					default:
						b.w.Progress()
					}
				}
			}()
			err := exchangeSizes(a, ab, 1, [2]ucp.Tag{tagPing, tagPong}, sizes)
			for other := false; !other; {
				select {
				case e := <-ends:
					require.NoError(t, e)
					other = true
				default:
					a.w.Progress()
				}
			}
			require.NoError(t, err)
			close(stop)
			<-ends
		})
	}
}
