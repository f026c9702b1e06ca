package shm

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol/protocoltest"
)

var goldenHello = connMsg{kind: kindOpen, flags: flagFence, name: ifaceName{1, 2, 3, 4, 5, 6, 7, 8}, slot: 0x102, cells: 128, bulk: 7808, pair: 3, old: 2, worker: [16]byte{15: 9}, conn: 0x1122}

func TestHelloGolden(t *testing.T) {
	decode := func(b []byte) (any, error) { return parseConnMsg(b) }
	protocoltest.Run(t, protocoltest.Golden{
		Format: &connFormat, File: "open", Version: 4, Features: 5, Bytes: goldenHello.append(nil), Want: goldenHello, Decode: decode,
	})
	refuse := connMsg{kind: kindReject, reason: "no ring", name: goldenHello.name}
	protocoltest.Run(t, protocoltest.Golden{
		Format: &connFormat, File: "reject", Version: 4, Features: 5, Bytes: refuse.append(nil), Want: refuse, Decode: decode,
	})
	refuse.reason = strings.Repeat("x", 500)
	h, err := parseConnMsg(refuse.append(nil))
	require.NoError(t, err)
	require.Len(t, h.reason, maxReason)
}

var goldenRegion = connMsg{kind: kindCopyRegion, name: ifaceName{1, 2, 3, 4, 5, 6, 7, 8}, region: copyRegion{
	regionRef: regionRef{slot: 0x0102, gen: 0x0304}, base: 0x7f0000001000, length: 1 << 20,
}}

func TestHelloRefusesDamage(t *testing.T) {
	whole := goldenHello.append(nil)
	for n := range whole {
		_, err := parseConnMsg(whole[:n])
		require.Error(t, err, "%d bytes", n)
	}
	region := goldenRegion.append(nil)
	for n := range region {
		_, err := parseConnMsg(region[:n])
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
		"magic": {spoil(0, 0), "not goucx's"},
		"kind":  {spoil(6, 99), "unknown kind 99"},
		"slot":  {spoil(17, 0xff), "slot"},
		"tail":  {append(whole, 1), "65 bytes"},
	} {
		_, err := parseConnMsg(tc.b)
		require.ErrorContains(t, err, tc.want, name)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(goldenHello.append(nil))
	f.Add((&connMsg{kind: kindReject, reason: "no"}).append(nil))
	f.Add((&connMsg{kind: kindCopyTable}).append(nil))
	f.Add(goldenRegion.append(nil))
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
	golden, err := hex.DecodeString("0300" + "e8030000" + "000102030405060708090a0b0c0d0e0f" + "f0000040000000000000000000000000" + "8877665544332211")
	require.NoError(t, err)
	golden = appendCRC(golden)
	protocoltest.Run(t, protocoltest.Golden{
		Format: &deviceFormat, File: "device-address", Version: 0, Features: 1, Bytes: golden, Want: nil,
		Decode: func(b []byte) (any, error) {
			if len(b) == deviceLen {
				b = appendCRC(b[:deviceLen-4])
			}
			if ok, why := compareDevice(golden, b); !ok {
				return nil, fmt.Errorf("%s: %w", why, ucs.ErrUnsupported)
			}
			return nil, nil
		},
	})

	mine := appendDeviceAddress(nil, "")
	require.Len(t, mine, deviceLen)
	ok, _ := compareDevice(mine, appendDeviceAddress(nil, ""))
	require.True(t, ok)
	for name, tc := range map[string]struct {
		at   int
		flip byte
		want string
	}{
		"version": {0, 0x40, "version"}, "directory": {1, 1, "UCX_SHM_SOCKET_DIR"}, "feature": {1, 2, "requires feature 1"}, "user": {2, 0x40, "user"},
		"host": {10, 0x40, "another host"}, "namespace": {22, 0x40, "network namespace"},
	} {
		b := append([]byte(nil), mine...)
		b[tc.at] ^= tc.flip
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
