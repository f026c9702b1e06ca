//go:build linux

package test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

const (
	numMixers   = 7
	tagScribble = ucp.Tag(1) << 63 // in the tags of the scribbler's honest messages
	tagMix      = ucp.Tag(0x5eed_c0de_600d) << 8
	mixMask     = ^ucp.Tag(0xff) // the rest is the sender; noise does not hit upon tagMix
)

// mixer exchanges numbered messages with all others; the tag is the sender.
type mixer struct {
	*parent
	*node
	id    int
	peers [numMixers]ucp.Endpoint
	bufs  [numMixers][]byte
	sent  [numMixers]ucp.Request
	out   [numMixers]uint64 // messages sent to each
	in    [numMixers]uint64 // due of each
	want  [numMixers]uint64
	recv  ucp.RecvRequest
	buf   []byte
	odd   ucp.RecvRequest // the scribbler's, whatever they are
}

// roleMixer says its address and hears its number and everybody's; "stop" ends its
// sending, it says how much it sent to each; then it hears how much it has to
// have from each, says "all", and after "counters" what its transport counted.
func roleMixer(p *parent) {
	v := &mixer{parent: p, node: must(newNode(ucp.ThreadSingle, patience)), buf: make([]byte, longest)}
	p.say(v.address())
	check(scanLine(p.hear(), &v.id))
	for i := range v.peers {
		v.peers[i] = must(v.connect(p.hear()))
		v.bufs[i] = make([]byte, longest)
	}
	v.postBoth()
	line, stopped := "", false
	for ; !stopped; line, stopped = v.heard() {
		v.turn(true)
	}
	if line != "stop" {
		check(fmt.Errorf("heard %q", line))
	}
	for line, stopped = v.heard(); !stopped; line, stopped = v.heard() {
		if v.turn(false); len(unended(v.sent[:])) == 0 && v.out[v.id] == 0 {
			v.out[v.id] = 1 // once
			p.say(strings.Trim(fmt.Sprint(v.out), "[]"))
		}
	}
	check(scanLine(line, anys(v.want[:])...))
	v.want[v.id] = v.in[v.id]
	for v.in != v.want {
		v.turn(false)
	}
	p.say("all")
	for _, stopped = v.heard(); !stopped; _, stopped = v.heard() {
		v.turn(false)
	}
	p.say(v.counters())
	p.hear()
	check(v.x.Close())
}

func anys[T any](s []T) (a []any) {
	for i := range s {
		a = append(a, &s[i])
	}
	return a
}

func (v *mixer) postBoth() {
	v.recv = v.w.TagRecv(v.buf, tagMix, mixMask)
	v.odd = v.w.TagRecv(make([]byte, longest), tagScribble, tagScribble)
}

// turn takes what is there and sends one message to each other, if it may.
func (v *mixer) turn(send bool) {
	did := v.w.Progress()
	ctx := context.Background()
	if v.odd.Done() {
		_, _ = v.odd.Wait(ctx)
		v.odd = v.w.TagRecv(make([]byte, longest), tagScribble, tagScribble)
	}
	for v.recv.Done() {
		m, err := v.recv.Wait(ctx)
		check(err)
		from, k, err := read(v.buf[:m.Len])
		check(err)
		if tagMix|ucp.Tag(from) != m.Tag || v.in[from] != k {
			check(fmt.Errorf("mixer %d, tag %d, from %d: %w", v.id, m.Tag, from, &orderError{k, v.in[from]}))
		}
		v.in[from]++
		v.recv = v.w.TagRecv(v.buf, tagMix, mixMask)
	}
	for to := range v.peers {
		if !send || to == v.id || !v.sent[to].Done() {
			continue
		}
		check(v.sent[to].Wait(ctx))
		p := v.bufs[to][:sizeOf(uint32(v.id), v.out[to])]
		fill(p, uint32(v.id), v.out[to])
		v.sent[to] = v.peers[to].TagSend(p, tagMix|ucp.Tag(v.id))
		v.out[to]++
		did++
	}
	v.nap(did)
}

// counters are those that counted, in a line.
func (v *mixer) counters() string {
	var b strings.Builder
	for _, c := range v.w.Stats().Snapshot() {
		if c.Value > 0 {
			fmt.Fprintf(&b, "%s=%d ", c.Name, c.Value)
		}
	}
	return b.String()
}

// roleScribbler connects to everybody, sends honest messages, and overwrites what
// it shares with them, its rings, its inbox and theirs, with noise; when they have
// hung up it comes back as another worker. It says how often it did so.
func roleScribbler(p *parent) {
	x := must(newNode(ucp.ThreadSingle, 100*time.Millisecond))
	var seed uint64
	check(scanLine(p.hear(), &seed))
	rng := rand.New(rand.NewPCG(seed, 0))
	var peers []string
	for range numMixers {
		peers = append(peers, p.hear())
	}
	mem := must(os.OpenFile("/proc/self/mem", os.O_RDWR, 0))
	mapped := must(x.x.Allocate(longest, ucp.MemConfig{})).Bytes()
	p.say("scribbling")
	lives, writes := 0, 0
	for {
		n := &node{x: x.x, w: must(x.x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle}))}
		var es []ucp.Endpoint
		for _, a := range peers {
			es = append(es, must(n.connect(a)))
		}
		for range 30 {
			for _, e := range es {
				buf := mapped
				if rng.IntN(2) == 0 {
					buf = make([]byte, longest)
				}
				e.TagSend(buf[:sizes[rng.IntN(len(sizes))]], tagScribble|ucp.Tag(rng.Uint64()))
				n.w.Progress()
			}
			writes += scribble(rng, mem)
			if _, ok := p.heard(); ok {
				p.say(lives, writes)
				os.Exit(0)
			}
			time.Sleep(time.Millisecond) // the others share the processors
		}
		for _, e := range es {
			e.Abort(nil)
		}
		_ = n.w.Close() // what it finds in its own rings is noise
		lives++
	}
}

// scribbled are the names of what two processes map. The scribbler's own key table is among them.
var scribbled = regexp.MustCompile("goucx-(pair|inbox|copies|keys)")

// scribble writes noise over some of what this process shares with others.
func scribble(rng *rand.Rand, mem *os.File) (writes int) {
	f := must(os.Open("/proc/self/maps"))
	defer f.Close() //nolint:errcheck // read only
	var noise [64]byte
	for in := bufio.NewScanner(f); in.Scan(); {
		if !scribbled.MatchString(in.Text()) {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(in.Text(), "%x-%x", &from, &to); err != nil {
			check(err)
		}
		for range 20 {
			for i := range noise {
				noise[i] = byte(rng.Uint32())
			}
			// The control words are in the first lines; cells follow.
			at := rng.Int64N(to - from - int64(len(noise)))
			if rng.IntN(2) == 0 {
				at %= 1024
			}
			n := 1 + rng.IntN(len(noise))
			if _, err := mem.WriteAt(noise[:n], from+at); err != nil {
				check(err)
			}
			writes++
		}
	}
	return writes
}

// TestScribbler: a live process that writes noise over all that it shares with
// seven others fails alone; what these exchange meanwhile comes whole and in order.
func TestScribbler(t *testing.T) {
	limit := 2 * time.Second
	if long() {
		limit = time.Minute
	}
	var mixers [numMixers]*process
	var addresses [numMixers]string
	for i := range mixers {
		mixers[i] = start(t, "mixer")
		addresses[i] = mixers[i].hear()
	}
	for i, p := range mixers {
		p.say(i)
		for _, a := range addresses {
			p.say(a)
		}
	}
	s := start(t, "scribbler")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s.say(seed)
	for _, a := range addresses {
		s.say(a)
	}
	s.expect("scribbling")
	for began := time.Now(); time.Since(began) < limit; {
		select {
		case line := <-s.lines:
			require.Fail(t, "the scribbler ended", line)
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.say("stop")
	var lives, writes int
	s.scan(&lives, &writes)
	require.NotZero(t, lives)
	total, garbage := stopMixers(t, mixers)
	t.Logf("%d lives of the scribbler, %d writes of noise; %d messages between the others", lives, writes, total)
	require.NotZero(t, garbage, "noise was noticed")
	requireNoTrace(t)
}

// stopMixers stops them, has each receive what was sent to it, and prints what
// each counted.
func stopMixers(t *testing.T, mixers [numMixers]*process) (total, garbage uint64) {
	var sent [numMixers][numMixers]uint64
	for _, p := range mixers {
		p.say("stop")
	}
	for i, p := range mixers {
		p.scan(anys(sent[i][:])...)
	}
	for to, p := range mixers {
		var want [numMixers]uint64
		for from := range mixers {
			want[from] = sent[from][to]
			if from != to {
				require.NotZero(t, want[from], "messages of %d to %d", from, to)
				total += want[from]
			}
		}
		p.say(strings.Trim(fmt.Sprint(want), "[]"))
	}
	for _, p := range mixers {
		p.expect("all")
	}
	for i, p := range mixers {
		p.say("counters")
		line := p.hear()
		t.Logf("mixer %d: %s", i, line)
		for f := range strings.FieldsSeq(line) {
			if n, ok := strings.CutPrefix(f, "shm.garbage="); ok {
				var k uint64
				require.NoError(t, scanLine(n, &k))
				garbage += k
			}
		}
		p.say("end")
	}
	for _, p := range mixers {
		p.ends()
	}
	return total, garbage
}
