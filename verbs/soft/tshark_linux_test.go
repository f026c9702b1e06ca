package soft

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs/verbstest"
	"github.com/goucx/goucx/verbs/wire"
)

// TestSuiteDissects: what devices send over UDP in all cases of the conformance
// suite that need no faults, trains and refusals among it, is InfiniBand to
// Wireshark, every opcode of RC and UD was there, and nothing is malformed.
func TestSuiteDissects(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "suite.pcap"))
	require.NoError(t, err)
	defer file.Close()
	c, err := wire.NewCapture(file)
	require.NoError(t, err)
	f := udpFixture
	plain := f.Open
	f.Open = func(t testing.TB, needs verbstest.Needs) *verbstest.Fabric {
		if needs&(verbstest.Packets|verbstest.Forgery) != 0 {
			return plain(t, needs)
		}
		return openReal(t, Config{Link: LinkUDP, Addr: localhost, Tap: func(sent bool, h *wire.Network, packet []byte) {
			if sent {
				_ = c.Packet(int64(ucs.Now()), h, packet)
			}
		}}, needs)
	}
	verbstest.Run(t, f)

	// The range of the devices' ports. What else is guessed at are other protocols
	// in short payloads, whose bytes are of no meaning here.
	decode := []string{"-r", file.Name(), "-d", "udp.port==32768-49151,infiniband"}
	for guess := range strings.FieldsSeq("smc smb_direct rpcordma nvme-rdma lnet iser ethertype infiniband.eoib infiniband_sdp fcoib") {
		decode = append(decode, "--disable-protocol", guess)
	}
	out, err := exec.Command(tshark, append(decode, "-Y", "_ws.malformed || _ws.expert.severity == error || !infiniband")...).Output()
	require.NoError(t, err)
	assert.Empty(t, string(out))
	out, err = exec.Command(tshark, append(decode, "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "infiniband.aeth.syndrome")...).Output()
	require.NoError(t, err)
	opcodes, syndromes := map[int64]int{}, map[int64]int{}
	for line := range strings.Lines(string(out)) {
		op, syn, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		count := func(m map[int64]int, s string) {
			if v, err := strconv.ParseInt(s, 0, 64); err == nil {
				m[v]++
			}
		}
		count(opcodes, op)
		count(syndromes, syn)
	}
	for op := range 256 {
		if wire.Opcode(op) != wire.CNP && wire.Opcode(op).Info().Name != "" {
			assert.NotZero(t, opcodes[int64(op)], "opcode %v", wire.Opcode(op))
		}
	}
	for _, s := range []wire.Syndrome{wire.AckNoCredits, wire.RNR(1), wire.NakInvalid, wire.NakRemoteAccess, wire.NakRemoteOp} {
		assert.NotZero(t, syndromes[int64(s)], "syndrome %#x", s)
	}
}
