package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

// Recorded with strace from perftest 4.5-0.17 and rdma-core 44 over rxe of Linux 6.1: the client of
// ib_read_lat, and the client of ibv_rc_pingpong.
const (
	goldenKey      = "0000:0080:00001b:d28e26:00000b84:000055bf99a88000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:03:00000000:\x00"
	goldenPingpong = "0000:000012:cbac6c:00000000000000000000ffff0a4d0001\x00"
	goldenVersion  = "6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
)

// gidOf returns an IPv4-mapped GID.
func gidOf(a, b, c, d byte) verbs.GID {
	return verbs.GID{10: 0xff, 11: 0xff, 12: a, 13: b, 14: c, 15: d}
}

func TestGoldenMessages(t *testing.T) {
	key := address{OutReads: 0x80, QPN: 0x1b, PSN: 0xd28e26, RKey: 0xb84, VA: 0x55bf99a88000, GID: gidOf(10, 77, 0, 3)}
	got, err := parseKey([]byte(goldenKey))
	require.NoError(t, err)
	assert.Equal(t, key, got)
	assert.Equal(t, goldenKey, string(key.appendKey(nil)))

	pp := address{QPN: 0x12, PSN: 0xcbac6c, GID: gidOf(10, 77, 0, 1)}
	got, err = parsePingpong([]byte(goldenPingpong))
	require.NoError(t, err)
	assert.Equal(t, pp, got)
	assert.Equal(t, goldenPingpong, string(pp.appendPingpong(nil)))

	v, same, err := parseVersion([]byte(goldenVersion))
	require.NoError(t, err)
	assert.Equal(t, 6.06, v)
	assert.False(t, same)
	assert.Equal(t, goldenVersion[:5], string(appendVersion(nil)[:5]), "as a C string")

	m, err := parseMTU([]byte("5\x00"))
	require.NoError(t, err)
	assert.Equal(t, verbs.MTU4096, m)
	assert.Equal(t, "5\x00", string(appendMTU(nil, m)))
}

// TestOurVersion: a peer recognises another rdmapeer.
func TestOurVersion(t *testing.T) {
	b := appendVersion(nil)
	require.Len(t, b, versionSize)
	v, same, err := parseVersion(b)
	require.NoError(t, err)
	assert.Equal(t, 6.06, v)
	assert.True(t, same)
}

// TestTruncatedMessages: each message that is cut at any byte is refused.
func TestTruncatedMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		full  string
		parse func(b []byte) error
	}{
		"address of perftest": {goldenKey, func(b []byte) error { _, err := parseKey(b); return err }},
		"address of pingpong": {goldenPingpong, func(b []byte) error { _, err := parsePingpong(b); return err }},
		"MTU":                 {"3\x00", func(b []byte) error { _, err := parseMTU(b); return err }},
	} {
		for n := range len(tc.full) {
			assert.ErrorIs(t, tc.parse([]byte(tc.full[:n])), errMessage, "%s cut to %d bytes", name, n)
			zeros := tc.full[:n] + strings.Repeat("\x00", len(tc.full)-n)
			if zeros != tc.full {
				assert.ErrorIs(t, tc.parse([]byte(zeros)), errMessage, "%s, zeros from byte %d on", name, n)
			}
		}
	}
}

// TestMalformedFields: the error names the field.
func TestMalformedFields(t *testing.T) {
	replace := func(s string, at int, with string) []byte { return []byte(s[:at] + with + s[at+len(with):]) }
	for _, tc := range []struct {
		at   int
		with string
		want string
	}{
		{0, "x", "LID"},
		{0, "-", "LID"},
		{5, "zz", "out_reads"},
		{10, " ", "QPN"},
		{17, "g", "PSN"},
		{24, "_", "rkey"},
		{33, "+", "address"},
		{50, "0", "byte 0 of the GID"},
		{96, ":", "byte 15 of the GID"},
		{98, "q", "SRQ number"},
		{107, "x", "behind the SRQ number"},
	} {
		b := replace(goldenKey, tc.at, tc.with)
		if tc.at == 50 {
			b[52] = '0' // three digits
		}
		_, err := parseKey(b)
		require.ErrorIs(t, err, errMessage, "%q", b)
		assert.ErrorContains(t, err, tc.want, "%q", b)
	}
	for _, tc := range []struct {
		at         int
		with, want string
	}{{0, "x", "LID"}, {5, "+", "QPN"}, {12, "x", "PSN"}, {20, "x", "GID"}, {51, "0", "GID"}} {
		_, err := parsePingpong(replace(goldenPingpong, tc.at, tc.with))
		require.ErrorIs(t, err, errMessage)
		assert.ErrorContains(t, err, tc.want)
	}
	for _, v := range []string{"", "x", "6.06", "+6.06", "1e3", "NaN", "inf", "5.69", "0x6p0"} {
		b := make([]byte, versionSize)
		copy(b, v)
		if v == "6.06" {
			b = []byte("6.06666666666666") // without a NUL
		}
		_, _, err := parseVersion(b)
		require.ErrorIs(t, err, errMessage, v)
		assert.ErrorContains(t, err, "version", v)
	}
	for _, m := range []string{"0\x00", "6\x00", "33", "a\x00"} {
		_, err := parseMTU([]byte(m))
		require.ErrorIs(t, err, errMessage, "%q", m)
	}
}

// FuzzMessages: no message makes a parser panic, and what it accepts it also writes.
func FuzzMessages(f *testing.F) {
	for _, s := range []string{goldenKey, goldenPingpong, goldenVersion, "5\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := parseKey(b); err == nil {
			assert.Equal(t, a, must(parseKey(a.appendKey(nil))))
		}
		if a, err := parsePingpong(b); err == nil {
			assert.Equal(t, strings.ToLower(string(b)), string(a.appendPingpong(nil)))
		}
		if m, err := parseMTU(b); err == nil {
			assert.Equal(t, b, appendMTU(nil, m))
		}
		if v, _, err := parseVersion(b); err == nil {
			assert.GreaterOrEqual(t, v, oldestPeer)
		}
	})
}

// must returns a, which was parsed.
func must(a address, err error) address {
	if err != nil {
		panic(fmt.Sprint("what was written is refused: ", err))
	}
	return a
}
