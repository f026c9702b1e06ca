package platform

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"slices"
)

// NetAddresses is a digest of the addresses, beyond loopback and single links, of the
// calling process's network namespace at this moment; 0 where the system does not show
// them. It tells apart hosts that have everything else in common, as clones of a
// running virtual machine have. Of IPv6 it knows only where there is no IPv4: those of
// a host change by themselves.
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
