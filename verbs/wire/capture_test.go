package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
)

const sendGolden = "0400ffff000000118000010068656c6c6f20736f667420726e696321daf5001c"

func TestCaptureGolden(t *testing.T) {
	var file bytes.Buffer
	c, err := NewCapture(&file)
	require.NoError(t, err)
	require.NoError(t, c.Packet(1_790_000_000_123_456_789, &flow4, unhex(t, sendGolden)))
	require.NoError(t, c.Packet(1, &flow6, unhex(t, sendGolden)))
	assert.Equal(t, strings.Join([]string{
		"4d3cb2a1", "0200", "0400", "00000000", "00000000", "00000100", "65000000",
		"803bb16a", "15cd5b07", "3c000000", "3c000000", ip4Golden, "12b712b700285637", sendGolden,
		"00000000", "01000000", "50000000", "50000000", ip6Golden, "9c4012b70028e6ab", sendGolden,
	}, ""), hexOf(file.Bytes()))
}

func TestCaptureSealsUDP(t *testing.T) {
	b := unhex(t, sendGolden)
	for name, c := range map[string]struct {
		h    Network
		b    []byte
		want uint16
	}{
		"IPv4":                 {flow4, b, 0x5637},
		"IPv4 of odd length":   {flow4, b[:29], 0x574e},
		"IPv6":                 {flow6, b, 0xe6ab},
		"IPv6 of odd length":   {flow6, b[:29], 0xe7c2},
		"a checksum that is 0": {flow4, append(unhex(t, sendGolden), 0x56, 0x33), 0xffff},
	} {
		ip := whole(&c.h, c.b)
		c.h.sealUDP(ip)
		udp := ip[len(ip)-len(c.b)-UDPLen:]
		assert.Equal(t, c.want, binary.BigEndian.Uint16(udp[udpSum:]), name)
	}
}

// A packet is one Write, so whatever was written when a program is killed can be
// read.
func TestCaptureWritesWhole(t *testing.T) {
	w := new(countingWriter)
	c, err := NewCapture(w)
	require.NoError(t, err)
	for i := range 10 {
		require.NoError(t, c.Packet(int64(i), &flow4, make([]byte, 16+4*i)))
	}
	assert.Equal(t, 11, w.writes)
}

func TestCaptureReportsErrors(t *testing.T) {
	w := &countingWriter{fail: errors.New("disk full")}
	_, err := NewCapture(w)
	assert.EqualError(t, err, "write pcap header: disk full")
	w.fail = nil
	c, err := NewCapture(w)
	require.NoError(t, err)
	w.fail = errors.New("disk full")
	assert.EqualError(t, c.Packet(0, &flow4, make([]byte, 20)), "write packet of 20 bytes to pcap: disk full")
}

func TestGateCaptureAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	c, err := NewCapture(io.Discard)
	require.NoError(t, err)
	b := make([]byte, 4124)
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = c.Packet(1, &flow4, b) }))
}

type countingWriter struct {
	writes int
	fail   error
}

func (w *countingWriter) Write(b []byte) (int, error) {
	w.writes++
	return len(b), w.fail
}
