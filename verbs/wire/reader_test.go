package wire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

// TestReaderReadsCapture: what Capture writes is read again.
func TestReaderReadsCapture(t *testing.T) {
	var file bytes.Buffer
	c, err := NewCapture(&file)
	require.NoError(t, err)
	b := unhex(t, sendGolden)
	require.NoError(t, c.Packet(1_790_000_000_123_456_789, &flow4, b))
	require.NoError(t, c.Packet(1, &flow6, b))
	r, err := NewCaptureReader(&file)
	require.NoError(t, err)
	at, h, packet, err := r.Next()
	require.NoError(t, err)
	assert.Equal(t, int64(1_790_000_000_123_456_789), at)
	assert.Equal(t, flow4, h)
	assert.Equal(t, b, packet)
	at, h, packet, err = r.Next()
	require.NoError(t, err)
	assert.Equal(t, int64(1), at)
	assert.Equal(t, flow6, h)
	assert.Equal(t, b, packet)
	_, _, _, err = r.Next()
	assert.Equal(t, io.EOF, err)
}

// TestReaderTruncated: a file that is cut anywhere but between packets is an error, with no packet
// made up.
func TestReaderTruncated(t *testing.T) {
	var file bytes.Buffer
	c, err := NewCapture(&file)
	require.NoError(t, err)
	require.NoError(t, c.Packet(1, &flow4, unhex(t, sendGolden)))
	whole := file.Bytes()
	for n := range whole {
		r, err := NewCaptureReader(bytes.NewReader(whole[:n]))
		if err != nil {
			assert.Less(t, n, 24)
			continue
		}
		_, _, _, err = r.Next()
		require.Error(t, err, "%d bytes", n)
		assert.Equal(t, n == 24, errors.Is(err, io.EOF), "%d bytes: %v", n, err)
	}
}

func FuzzReader(f *testing.F) {
	for _, name := range goldenNames(f) {
		b, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(b[:min(len(b), 1500)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewCaptureReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		for range len(b) { // each packet takes at least its header
			_, h, packet, err := r.Next()
			if err != nil {
				return
			}
			assert.LessOrEqual(t, len(packet), len(b))
			assert.True(t, h.Src.IsValid() && h.Dst.IsValid())
		}
		t.Fatal("more packets than bytes")
	})
}

// goldenNames are captures of the kernel's Soft-RoCE, which test/rxe makes: RC and UD between two
// devices, five messages each, with a path MTU of 1024.
func goldenNames(t testing.TB) []string {
	names, err := filepath.Glob("testdata/rxe-*.pcap")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	return names
}

// TestGoldenCaptures: the packets of another implementation are parsed, their ICRC is right with the
// identification searched for, and they are in order.
func TestGoldenCaptures(t *testing.T) {
	messages := map[string][]Opcode{ // the packets of a message and of its reply
		"testdata/rxe-send.pcap":       {SendFirst, SendMiddle, SendLast, Acknowledge},
		"testdata/rxe-write-ipv6.pcap": {WriteFirst, WriteMiddle, WriteLast, Acknowledge},
		"testdata/rxe-read.pcap":       {ReadRequest, ReadResponseFirst, ReadResponseMiddle, ReadResponseLast},
		"testdata/rxe-atomic.pcap":     {FetchAdd, AtomicAcknowledge},
		"testdata/rxe-datagram.pcap":   {UDSendOnly},
	}
	names := goldenNames(t)
	assert.Len(t, names, len(messages))
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			want := messages[name]
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			r, err := NewCaptureReader(bytes.NewReader(b))
			require.NoError(t, err)
			var data int
			var next verbs.PSN
			for i := 0; ; i++ {
				_, h, b, err := r.Next()
				if errors.Is(err, io.EOF) {
					assert.Equal(t, 5*len(want), i)
					break
				}
				require.NoError(t, err)
				p, fault := Parse(b)
				require.Zero(t, fault, "packet %d: %v", i, fault)
				assert.Equal(t, want[i%len(want)], p.Opcode, "packet %d", i)
				id, ok := NewPrefix(h.Src, h.Dst).Check(b, 0)
				assert.True(t, ok, "packet %d: ICRC", i)
				assert.Equal(t, h.ID, id, "packet %d: identification", i)
				if h.IPv4() {
					b[len(b)/2] ^= 1
					id, ok = NewPrefix(h.Src, h.Dst).Check(b, 0)
					assert.False(t, ok && id == h.ID, "packet %d, one bit turned", i)
				}
				switch p.Opcode.Info().Kind {
				case KindAck:
					if i > 0 {
						assert.Equal(t, next-1, p.PSN, "packet %d", i)
					}
				default:
					if i > 0 {
						assert.Equal(t, next, p.PSN, "packet %d", i)
					}
					next = p.PSN.Add(1)
					if p.Opcode == ReadRequest {
						next = p.PSN // its responses have its PSN and the next
						assert.Equal(t, uint32(2101), p.DMALen)
					}
				}
				data += len(p.Payload)
			}
			assert.Equal(t, map[string]int{"testdata/rxe-atomic.pcap": 0, "testdata/rxe-datagram.pcap": 5 * 101}[name]+map[bool]int{true: 5 * 2101}[len(want) == 4], data)
		})
	}
}
