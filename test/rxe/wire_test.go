package rxe

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/test/rxe/vm"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

var update = flag.Bool("rxe.update", false, "rewrite the captures in verbs/wire/testdata")

// goldenDir has the captures that package wire's tests parse.
var goldenDir = filepath.Join("..", "..", "verbs", "wire", "testdata")

// captured runs exchange with a capture of the bridge between the devices, and returns that as a pcap file.
func captured(t *testing.T, exchange func()) string {
	t.Helper()
	m := machine(t)
	p, err := m.Start(vm.Job{Argv: []string{"tcpdump", "-i", "pe0", "-Z", "root", "-s", "0", "-U", "-w", "-", "udp port 4791"}, Peer: true, Limit: 2 * time.Minute})
	require.NoError(t, err)
	// Its head is one line, each packet socket another.
	run(t, vm.Job{Name: "wait for tcpdump", Argv: []string{"sh", "-c", "until [ $(grep -c . /proc/net/packet) -gt 1 ]; do sleep 0.05; done"}, Peer: true, Limit: 20 * time.Second})
	exchange()
	run(t, vm.Job{Argv: []string{"sleep", "1"}}) // for what is still on its way
	require.NoError(t, p.Signal(syscall.SIGINT))
	r, err := p.Wait()
	require.NoError(t, err)
	requireOK(t, "tcpdump", r)
	assert.Contains(t, r.Stderr, "0 packets dropped by kernel")
	return r.Stdout
}

// packet is a packet of a capture.
type packet struct {
	h wire.Network
	p wire.Packet
	b []byte // from the BTH to the ICRC
}

// TestInteropCaptures: packets of an exchange with a soft device are to package wire and to Wireshark what they
// should be, from both sides.
func TestInteropCaptures(t *testing.T) {
	provide(t, rdmapeer)
	defer spent("captures of a soft device and an rxe device", time.Now())
	// The interface of the soft device segments, so that a capture has packets and not segment batches.
	segments := func(most string) {
		run(t, vm.Job{Argv: []string{"ip", "-n", "peer", "link", "set", "pe0", "gso_max_segs", most}})
	}
	segments("1")
	defer segments("65535")
	for _, x := range []exchange{
		{program: "ib_send_bw", options: "-n 5 -s 2101 -m 1024", short: true},
		{program: "ib_write_bw", options: "-n 5 -s 2101 -m 1024", ipv6: true},
		{program: "ib_read_bw", options: "-n 5 -s 2101 -m 1024"},
		{program: "ib_atomic_bw", options: "-n 5 -m 1024"},
		{program: "ib_send_bw", options: "-n 5 -s 101 -c UD"},
	} {
		if testing.Short() && !x.short {
			continue
		}
		for _, softServes := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s %s, soft serves %v", x.program, x.options, softServes), func(t *testing.T) {
				pcap := captured(t, func() { x.run(t, softServes) })
				packets := parsed(t, pcap)
				ports := map[uint16]int{}
				for _, p := range packets {
					ports[p.h.Dst.Port()]++
				}
				assert.Equal(t, map[uint16]int{wire.Port: len(packets)}, ports)
				checkOrder(t, packets)
				checkDissected(t, pcap, packets)
			})
		}
	}
}

// parsed holds each packet of a capture to package wire: it is well-formed and its ICRC is right for the
// identification in the IP header, which the search finds, too.
func parsed(t *testing.T, pcap string) (packets []packet) {
	t.Helper()
	r, err := wire.NewCaptureReader(strings.NewReader(pcap))
	require.NoError(t, err)
	for i := 0; ; i++ {
		_, h, b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return packets
		}
		require.NoError(t, err)
		b = bytes.Clone(b)
		p, fault := wire.Parse(b)
		require.Zero(t, fault, "packet %d: %v", i, fault)
		prefix := wire.NewPrefix(h.Src, h.Dst)
		id, ok := prefix.Check(b, h.ID)
		require.True(t, ok && id == h.ID, "packet %d: %v: ICRC is wrong for identification %#x", i, p.Opcode, h.ID)
		id, ok = prefix.Check(b, 0)
		require.True(t, ok && id == h.ID, "packet %d: %v: identification %#x found, is %#x", i, p.Opcode, id, h.ID)
		packets = append(packets, packet{h, p, b})
	}
}

// checkOrder holds the requests of each flow to consecutive PSNs. In a slow machine a requester may send some again.
func checkOrder(t *testing.T, packets []packet) {
	t.Helper()
	type flow struct {
		src, dst netip.Addr
		qp       verbs.QPN
	}
	next := map[flow]verbs.PSN{}
	again := 0
	for i, p := range packets {
		info := p.p.Opcode.Info()
		if info.Kind == wire.KindReadResponse || info.Kind == wire.KindAck {
			continue
		}
		n := 1
		if info.Kind == wire.KindReadRequest {
			n = max(1, (int(p.p.DMALen)+wireMTU-1)/wireMTU)
		}
		f := flow{p.h.Src.Addr(), p.h.Dst.Addr(), p.p.DestQP}
		want, known := next[f]
		if known && p.p.PSN.Before(want) {
			again++
			continue
		}
		if known {
			assert.Equal(t, want, p.p.PSN, "packet %d: %v to %#x", i, p.p.Opcode, p.p.DestQP)
		}
		next[f] = p.p.PSN.Add(n)
	}
	if again > 0 {
		t.Logf("%d of %d packets are requests that were sent again", again, len(packets))
	}
}

// checkDissected holds a capture to Wireshark's: nothing is malformed, and opcode, PSN, length and ICRC of each packet are the
// same.
func checkDissected(t *testing.T, pcap string, packets []packet) {
	t.Helper()
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	file := filepath.Join(t.TempDir(), "run.pcap")
	require.NoError(t, os.WriteFile(file, []byte(pcap), 0o600))
	// rxe sends IPv6 without UDP checksum, which the specification of RoCEv2 allows.
	decode := []string{"-r", file, "-d", "udp.port==4791,infiniband", "-o", "udp.ignore_ipv6_zero_checksum:TRUE"}
	for guess := range strings.FieldsSeq("smc smb_direct rpcordma nvme-rdma lnet iser ethertype infiniband.eoib infiniband_sdp fcoib") {
		decode = append(decode, "--disable-protocol", guess) // they take payload bytes for their own
	}
	out, err := exec.Command(tshark, append(slices.Clone(decode), "-Y", "_ws.malformed || _ws.expert.severity == error || !infiniband")...).Output()
	require.NoError(t, err)
	require.Empty(t, string(out))
	out, err = exec.Command(tshark, append(decode, "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-e", "udp.length", "-e", "infiniband.invariant.crc")...).Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, len(packets))
	for i, p := range packets {
		var got [4]uint64
		for j, s := range strings.Fields(lines[i]) {
			got[j], err = strconv.ParseUint(s, 0, 64)
			require.NoError(t, err, lines[i])
		}
		crc := p.b[len(p.b)-wire.ICRCLen:]
		want := [4]uint64{uint64(p.p.Opcode), uint64(p.p.PSN), uint64(wire.UDPLen + len(p.b)), uint64(crc[0])<<24 | uint64(crc[1])<<16 | uint64(crc[2])<<8 | uint64(crc[3])}
		require.Equal(t, want, got, "packet %d", i)
	}
}

// wireMTU is the path MTU of the golden captures.
const wireMTU = 1024

// goldens are exchanges between rxe0 and rxe1 whose captures package wire keeps. Lengths are no multiple of four and take
// three packets.
var goldens = []struct {
	file, program, options string
	gid                    int
	opcodes                []wire.Opcode // that must be there
}{
	{"rxe-send", "ib_send_bw", "-n 5 -t 1 -s 2101 -m 1024", 1, []wire.Opcode{wire.SendFirst, wire.SendMiddle, wire.SendLast, wire.Acknowledge}},
	{"rxe-write-ipv6", "ib_write_bw", "-n 5 -t 1 -s 2101 -m 1024", 2, []wire.Opcode{wire.WriteFirst, wire.WriteMiddle, wire.WriteLast, wire.Acknowledge}},
	{"rxe-read", "ib_read_bw", "-n 5 -t 1 -s 2101 -m 1024", 1, []wire.Opcode{wire.ReadRequest, wire.ReadResponseFirst, wire.ReadResponseMiddle, wire.ReadResponseLast}},
	{"rxe-atomic", "ib_atomic_bw", "-n 5 -t 1 -m 1024", 1, []wire.Opcode{wire.FetchAdd, wire.AtomicAcknowledge}},
	{"rxe-datagram", "ib_send_bw", "-n 5 -t 1 -s 101 -c UD -m 1024", 1, []wire.Opcode{wire.UDSendOnly}},
}

// TestGoldenCaptures: the kernel's packets are to package wire and to Wireshark what the exchange was.
func TestGoldenCaptures(t *testing.T) {
	defer spent("captures of two rxe devices", time.Now())
	for _, g := range goldens {
		if testing.Short() && g.file != "rxe-send" {
			continue
		}
		t.Run(g.file, func(t *testing.T) {
			argv := append([]string{g.program, "-F", "-u", "18", "-x", strconv.Itoa(g.gid)}, strings.Fields(g.options)...)
			job := func(more ...string) vm.Job {
				return vm.Job{Argv: append(slices.Clone(argv), more...), Limit: 30 * time.Second}
			}
			pcap := captured(t, func() { runPair(t, job("-d", "rxe0"), job("-d", "rxe1", "10.77.0.1")) })
			packets := parsed(t, pcap)
			seen := map[wire.Opcode]int{}
			for _, p := range packets {
				seen[p.p.Opcode]++
			}
			for _, op := range g.opcodes {
				assert.NotZero(t, seen[op], "%v", op)
			}
			checkOrder(t, packets)
			checkDissected(t, pcap, packets)
			if *update && !t.Failed() {
				require.NoError(t, os.WriteFile(filepath.Join(goldenDir, g.file+".pcap"), []byte(pcap), 0o644))
				fmt.Printf("%s: %d packets, %d bytes\n", g.file, len(packets), len(pcap))
			}
		})
	}
}
