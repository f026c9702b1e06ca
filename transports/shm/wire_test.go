package shm

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var goldenHello = connMsg{kind: kindOpen, flags: flagFence, name: ifaceName{1, 2, 3, 4, 5, 6, 7, 8}, slot: 0x102, cells: 128, bulk: 7808, pair: 3, old: 2, worker: [16]byte{15: 9}, conn: 0x1122}

func TestHelloGolden(t *testing.T) {
	b := goldenHello.append(nil)
	require.Equal(t, "67756378"+"0300"+"01"+"01"+"0102030405060708"+"0201"+"0000"+"80000000"+"801e0000"+"0300000002000000"+"00000000"+strings.Repeat("00", 15)+"09"+"2211000000000000", hex.EncodeToString(b))
	h, err := parseConnMsg(b)
	require.NoError(t, err)
	require.Equal(t, goldenHello, h)
	refuse := connMsg{kind: kindReject, reason: strings.Repeat("x", 500)}
	h, err = parseConnMsg(refuse.append(nil))
	require.NoError(t, err)
	require.Len(t, h.reason, maxReason)
}

func TestHelloRefusesDamage(t *testing.T) {
	whole := goldenHello.append(nil)
	for n := range whole {
		_, err := parseConnMsg(whole[:n])
		require.Error(t, err, "%d bytes", n)
	}
	spoil := func(at int, v byte) []byte {
		b := append([]byte(nil), whole...)
		b[at] = v
		return b
	}
	for name, tc := range map[string]struct {
		b    []byte
		want string
	}{
		"magic":   {spoil(0, 0), "not goucx's"},
		"version": {spoil(4, 9), "version 9"},
		"kind":    {spoil(6, 99), "unknown kind 99"},
		"slot":    {spoil(17, 0xff), "slot"},
		"tail":    {append(whole, 1), "65 bytes"},
	} {
		_, err := parseConnMsg(tc.b)
		require.ErrorContains(t, err, tc.want, name)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(goldenHello.append(nil))
	f.Add((&connMsg{kind: kindReject, reason: "no"}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseConnMsg(b)
		if err != nil {
			return
		}
		again, err := parseConnMsg(h.append(nil))
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}

func TestDeviceAddress(t *testing.T) {
	mine := appendDeviceAddress(nil, "")
	require.Len(t, mine, deviceLen)
	ok, _ := compareDevice(mine, appendDeviceAddress(nil, ""))
	require.True(t, ok)
	for name, tc := range map[string]struct {
		at   int
		want string
	}{"version": {0, "version"}, "kind": {1, "UCX_SHM_SOCKET_DIR"}, "user": {2, "user"}, "host": {10, "another host"}, "namespace": {22, "network namespace"}} {
		b := append([]byte(nil), mine...)
		b[tc.at] ^= 0x40
		ok, why := compareDevice(mine, b)
		require.False(t, ok, name)
		require.Contains(t, why, tc.want, name)
	}
	for n := range mine {
		ok, _ := compareDevice(mine, mine[:n])
		require.False(t, ok)
	}
	dir := t.TempDir()
	there := appendDeviceAddress(nil, dir)
	ok, _ = compareDevice(there, appendDeviceAddress(nil, dir))
	require.True(t, ok)
	ok, why := compareDevice(there, appendDeviceAddress(nil, t.TempDir()))
	require.False(t, ok)
	require.Contains(t, why, "another directory")
}
