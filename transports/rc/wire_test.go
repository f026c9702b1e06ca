package rc

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs/protocol/protocoltest"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// someNote has something in each field.
func someNote() connMsg {
	return connMsg{
		msg: machine.Msg{
			Kind: machine.MsgMigrate, Worker: [16]byte{1, 2, 3}, From: 0x1112131415161718, To: 0x2122232425262728,
			Pair: 3, Old: 5, Resume: true,
		},
		qpInfo: qpInfo{0x303132, 0x404142},
		from: peerAt(&nic.Address{
			Port: nic.PortAddress{MTU: verbs.MTU4096, GID: verbs.GIDOf(local), LID: 0x8181, ScopeID: 0x9192939495969798},
			Seg:  8192, Worker: [16]byte{9, 8, 7}, QPN: 0x515253,
		}),
	}
}

// TestNote holds the bytes that docs/wire/rc.md names.
func TestNote(t *testing.T) {
	n := someNote()
	b := n.append(nil)
	require.Len(t, b, connMsgMinLen)
	require.Equal(t, "03"+"05"+"01"+"00"+"01020300000000000000000000000000"+"1817161514131211"+"2827262524232221"+
		"03000000"+"05000000"+"32313000"+"42414000"+
		"04000005"+"00200000"+"00000000000000000000ffff7f000001"+"9897969594939291"+"6ab90e64"+
		"09080700000000000000000000000000"+"535251"+"8181"+"a187fbb2", hex.EncodeToString(b[:len(b)-connMsgSumLen]))
	protocoltest.Run(t, protocoltest.Golden{
		Format: &connFormat, File: "migrate", Version: connMsgOffVersion, Features: connMsgOffFeatures, Bytes: b, Want: n,
		Seal: func(b []byte) []byte { return nic.AppendChecksum(b[:len(b)-connMsgSumLen], 0) },
		Decode: func(b []byte) (any, error) {
			var n connMsg
			err := n.parse(b)
			return n, err
		},
	})
	var got connMsg
	require.NoError(t, got.parse(b))
	require.Equal(t, n, got)
	for k := range b {
		require.Error(t, got.parse(b[:k]))
	}
	for bit := range len(b) * 8 {
		c := append([]byte(nil), b...)
		c[bit/8] ^= 1 << (bit % 8)
		require.Error(t, got.parse(c), "bit %d", bit)
	}
	within := n
	within.from.port.Fabric = nic.FabricProcess
	require.Len(t, within.append(nil), connMsgMaxLen)
	require.NoError(t, got.parse(within.append(nil)))
	require.Equal(t, within, got)
	n = connMsg{msg: n.msg, flags: flagShutdown | flagSeparate | flagDrained | flagWantReply, qpInfo: n.qpInfo, from: n.from}
	require.NoError(t, got.parse(n.append(nil)))
	require.Equal(t, n, got)
	n = connMsg{msg: n.msg, flags: flagAccessError, qpInfo: n.qpInfo, from: n.from}
	require.Error(t, got.parse(n.append(nil)), "a refused access in another kind than gone")
	n.msg.Kind = machine.MsgReset
	require.NoError(t, got.parse(n.append(nil)))
	require.Equal(t, n, got)
	n.msg.From = 0
	require.Error(t, got.parse(n.append(nil)), "a connection without a name")
	n = someNote()
	n.qpInfo.psn = 1 << 24
	require.Error(t, got.parse(n.append(nil)), "a packet number of 25 bits")
}

// TestRejectBytes: the features that an OPEN requires and its receiver does not know.
func TestRejectBytes(t *testing.T) {
	n := someNote()
	n.msg.Kind, n.refused, n.qpInfo.qpn = machine.MsgReject, 1<<2, 0
	b := n.append(nil)
	require.Equal(t, "04000000", hex.EncodeToString(b[connMsgOffQPN:connMsgOffPSN]))
	var got connMsg
	require.NoError(t, got.parse(b))
	require.Equal(t, n, got)
}

func FuzzNote(f *testing.F) {
	n := someNote()
	f.Add(n.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var n connMsg
		if n.parse(b) == nil {
			var again connMsg
			assert.NoError(t, again.parse(n.append(nil)))
			assert.Equal(t, n, again)
		}
	})
}

func TestTimeoutCode(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		code uint8
	}{{1, 1}, {8192, 1}, {8193, 2}, {time.Second, 18}, {2 * time.Second, 19}, {1 << 62, 31}} {
		require.Equal(t, c.code, timeoutCode(c.d), "%v", c.d)
	}
}

// TestQPNTable compares the table with a map, through adds and removes at random.
func TestQPNTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var table qpnTable
	want := map[verbs.QPN]*connQP{}
	for range 20_000 {
		k := verbs.QPN(1 + random.IntN(300))
		switch p := want[k]; {
		case p == nil:
			want[k] = &connQP{}
			table.add(k, want[k])
		default:
			table.remove(k)
			delete(want, k)
		}
		k = verbs.QPN(1 + random.IntN(300))
		require.Same(t, want[k], table.find(k))
		require.Equal(t, len(want), table.n)
	}
	table.remove(1000)
	require.Nil(t, new(qpnTable).find(1))
}
