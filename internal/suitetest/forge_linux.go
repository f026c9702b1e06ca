package suitetest

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Forger sends an ICMP error, port unreachable, for each datagram that it sees.
type Forger struct {
	// Quote is how many bytes of a datagram an error quotes behind the IP header, with the UDP
	// header.
	Quote atomic.Int32
	// Sent is the number of errors sent.
	Sent atomic.Int32
}

// ForgeICMP starts a Forger in the network namespace of the calling thread, until the test ends.
// It sees the IPv4 datagrams that arrive there for a UDP port, and quotes them whole.
func ForgeICMP(t testing.TB, port uint16) *Forger {
	t.Helper()
	in, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.IPPROTO_UDP)
	require.NoError(t, err)
	out, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.IPPROTO_ICMP)
	require.NoError(t, err)
	require.NoError(t, syscall.SetsockoptTimeval(in, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Usec: 10_000}))
	f := new(Forger)
	f.Quote.Store(1 << 16)
	var ended sync.WaitGroup
	var stop atomic.Bool
	ended.Go(func() {
		b := make([]byte, 1<<16)
		for !stop.Load() {
			n, _, err := syscall.Recvfrom(in, b, 0)
			if err != nil || n < 28 || binary.BigEndian.Uint16(b[22:]) != port {
				continue
			}
			m := slices.Concat([]byte{3, 3, 0, 0, 0, 0, 0, 0}, b[:min(n, 20+int(f.Quote.Load()), 576-28)])
			binary.BigEndian.PutUint16(m[2:], checksum(m))
			if syscall.Sendto(out, m, 0, &syscall.SockaddrInet4{Addr: [4]byte(b[12:16])}) == nil {
				f.Sent.Add(1)
			}
		}
	})
	t.Cleanup(func() {
		stop.Store(true)
		ended.Wait()
		require.NoError(t, syscall.Close(in))
		require.NoError(t, syscall.Close(out))
	})
	return f
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i]) << 8
		if i+1 < len(b) {
			sum += uint32(b[i+1])
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
