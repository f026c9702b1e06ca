package platform

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNetDigest(t *testing.T) {
	of := func(cidrs ...string) uint64 {
		var as []net.Addr
		for _, c := range cidrs {
			ip, n, err := net.ParseCIDR(c)
			assert.NoError(t, err)
			as = append(as, &net.IPNet{IP: ip, Mask: n.Mask})
		}
		return netDigest(as)
	}
	const lo, link, a, b, six = "127.0.0.1/8", "fe80::1/64", "10.1.2.3/24", "10.1.2.4/24", "2001:db8::1/64"
	assert.NotZero(t, of())
	assert.Equal(t, of(), of(lo, "::1/128", link), "they say nothing of the host")
	assert.Equal(t, of(a, b), of(lo, b, link, a), "whatever the order")
	assert.NotEqual(t, of(a), of(b))
	assert.NotEqual(t, of(a), of(a, b))
	assert.Equal(t, of(a), of(a, six), "those of IPv6 come and go")
	assert.NotEqual(t, of(), of(six))
	assert.Equal(t, NetAddresses(), NetAddresses())
}
