package platform

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"slices"
)

// NetAddresses returns a digest of the current IP addresses of the calling process's network
// namespace, or 0 if the system does not report them. Loopback and link-local addresses are
// excluded. The digest distinguishes hosts that are otherwise equal, such as clones of a
// running virtual machine. It includes IPv6 addresses only if there are no IPv4 addresses,
// since a host's IPv6 addresses change without configuration.
func NetAddresses() uint64 {
	as, err := net.InterfaceAddrs()
	if err != nil {
		return 0
	}
	return netDigest(as)
}

func netDigest(as []net.Addr) uint64 {
	var v4, v6 [][]byte
	for _, a := range as {
		n, ok := a.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		if ip := n.IP.To4(); ip != nil {
			v4 = append(v4, ip)
		} else {
			v6 = append(v6, n.IP)
		}
	}
	if v4 == nil {
		v4 = v6
	}
	slices.SortFunc(v4, bytes.Compare)
	sum := sha256.Sum256(slices.Concat(v4...))
	return max(binary.LittleEndian.Uint64(sum[:]), 1)
}
